/* Transactions over TCP, each of a connection of its own: connect, one byte there, one byte back (once or some times), reset.
 *
 * usage: crr serve PORT                            until it is killed; prints "ready" first
 *        crr ask ADDRESS PORT SECONDS CLIENTS [EXCHANGES]    so many clients at a time; prints one JSON line
 * A reset leaves no connection behind that waits for its time to pass, so the ports of the clients never run out.
 * build: cc -O2 -pthread -o crr crr.c */
#define _GNU_SOURCE
#include "clock.h"
#include "histogram.h"
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

enum { CLIENTS_MAX = 256, EVENTS = 64, BACKLOG = 4096 };
/* What has no answer by then has failed. */
static const struct timeval patience = { 1, 0 };

/* ---- The server: one thread for all connections. */

static void serve(int port)
{
    struct sockaddr_in address = { .sin_family = AF_INET, .sin_port = htons(port) };
    struct epoll_event events[EVENTS], event = { .events = EPOLLIN };
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0), poll = epoll_create1(0), one = 1;
    if (listener < 0 || poll < 0) fail("socket");
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (bind(listener, (struct sockaddr *) &address, sizeof address) || listen(listener, BACKLOG)) fail("listen");
    event.data.fd = listener;
    if (epoll_ctl(poll, EPOLL_CTL_ADD, listener, &event)) fail("epoll");
    puts("ready");
    fflush(stdout);
    for (;;) {
        int ready = epoll_wait(poll, events, EVENTS, -1);
        for (int i = 0; i < ready; i++) {
            int fd = events[i].data.fd;
            char byte;
            if (fd != listener) {
                /* The client's reset ends a connection, as does anything else but its byte. */
                if (recv(fd, &byte, 1, MSG_DONTWAIT) != 1 || send(fd, &byte, 1, MSG_NOSIGNAL) != 1) close(fd);
                continue;
            }
            while ((fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK)) >= 0) {
                setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
                event.data.fd = fd;
                if (epoll_ctl(poll, EPOLL_CTL_ADD, fd, &event)) close(fd);
            }
        }
    }
}

/* ---- The clients: a thread for each. */

static struct sockaddr_in server = { .sin_family = AF_INET };
static volatile int done;
static int exchanges = 1;

struct client { pthread_t thread; unsigned long failed; struct histogram took; };

static int transaction(void)
{
    struct linger reset = { .l_onoff = 1 };
    int fd = socket(AF_INET, SOCK_STREAM, 0), one = 1, good;
    char byte = 'x';
    if (fd < 0) fail("socket");
    setsockopt(fd, SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    good = !connect(fd, (struct sockaddr *) &server, sizeof server);
    for (int i = 0; good && i < exchanges; i++) good = send(fd, &byte, 1, MSG_NOSIGNAL) == 1 && recv(fd, &byte, 1, 0) == 1;
    close(fd);
    return good;
}

static void *be_client(void *argument)
{
    struct client *c = argument;
    while (!done) {
        double start = now_s();
        if (transaction()) histogram_add(&c->took, (now_s() - start) * 1e9); else c->failed++;
    }
    return NULL;
}

static int ask(const char *address, int port, double seconds, int count)
{
    static struct histogram all;
    struct client *clients = calloc(count > 0 ? count : 1, sizeof *clients);
    unsigned long failed = 0;
    double start = now_s(), took;
    if (!clients) fail("memory");
    if (count < 1 || count > CLIENTS_MAX || seconds <= 0 || exchanges < 1 || inet_pton(AF_INET, address, &server.sin_addr) != 1) {
        fprintf(stderr, "crr: an IPv4 address, seconds, 1 to %d clients, and 1 exchange or more\n", CLIENTS_MAX);
        return 2;
    }
    server.sin_port = htons(port);
    for (int i = 0; i < count; i++) if (pthread_create(&clients[i].thread, NULL, be_client, &clients[i])) fail("thread");
    usleep(seconds * 1e6);
    done = 1;
    took = now_s() - start;
    for (int i = 0; i < count; i++) {
        pthread_join(clients[i].thread, NULL);
        histogram_merge(&all, &clients[i].took);
        failed += clients[i].failed;
    }
    printf("{\"per_second\": %.0f, \"failed\": %lu, \"us\": ", all.count / took, failed);
    histogram_print(&all);
    puts("}");
    return 0;
}

int main(int argc, char **argv)
{
    if (argc == 3 && !strcmp(argv[1], "serve")) serve(atoi(argv[2]));
    if (argc == 7) exchanges = atoi(argv[6]);
    if ((argc == 6 || argc == 7) && !strcmp(argv[1], "ask")) return ask(argv[2], atoi(argv[3]), atof(argv[4]), atoi(argv[5]));
    fprintf(stderr, "usage: see the top of crr.c\n");
    return 2;
}
