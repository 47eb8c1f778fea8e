/* Many OVSDB clients in one thread that cost next to nothing: they send JSON texts that were made beforehand and count the
 * texts that come back, without looking at what they say, so that what is measured is the server.
 *
 * usage: clients SOCKET N FILE answers           each connects, sends its line of FILE, and is done with one answer
 *        clients SOCKET N FILE loop SECONDS      each sends its lines again and again, one after the other's answer
 *        clients SOCKET N FILE hear COUNT FILE2  each sends its line and has its answer; then, COUNT times, one more client
 *                                                sends the next line of FILE2: until all N, and it, have one text more
 *        clients SOCKET N FILE through           each sends all lines, one after the other's answer
 *        clients SOCKET N FILE gaps              as loop, until standard input ends
 *        clients SOCKET N FILE chassis           each sends its line, as ovn-controller of the chassis hv1, hv2, ... monitors
 *                                                OVN's southbound database, and confirms each nb_cfg that it hears of, until
 *                                                standard input ends
 * SOCKET is the path of a unix socket. Client i begins with line i of FILE, modulo its lines; with `loop` and `gaps` it goes
 * on with the lines behind that. `hear`, `gaps` and `chassis` print "ready" when they begin. Each prints one JSON line at its end;
 * times are in seconds.
 * build: cc -O2 -o clients clients.c */
#define _GNU_SOURCE
#include "clock.h"
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum { EVENTS = 256, SAMPLES = 1 << 20, PATIENCE_MS = 600000 };

struct lines { char **text; size_t *length; size_t n; };

struct client {
    int fd;
    size_t line;           /* the next to send */
    const char *rest;      /* what is not sent yet of the last */
    size_t rest_len;
    unsigned long texts;   /* complete ones that came */
    unsigned depth;        /* brackets that are open */
    bool in_string, escaped;
    double sent_s;
    /* Of a chassis: how much of `NB_CFG` has come, the number behind it, the last one that it has heard of and confirmed. */
    unsigned matched;
    long number, heard, confirmed;
    char confirmation[256];
};

static const char NB_CFG[] = "\"nb_cfg\":";
static bool is_chassis;

static char in[1 << 20];
static unsigned long long bytes_read;
static double *samples;
static size_t n_samples;
static int epoll;

static struct lines read_lines(const char *path)
{
    struct lines lines = { 0 };
    FILE *file = fopen(path, "r");
    if (!file) fail(path);
    char *text = NULL;
    size_t room = 0, space = 0;
    ssize_t length;
    while ((length = getline(&text, &room, file)) > 0) {
        if (text[length - 1] == '\n') length--;
        if (lines.n == space) {
            space = space ? 2 * space : 64;
            lines.text = realloc(lines.text, space * sizeof *lines.text);
            lines.length = realloc(lines.length, space * sizeof *lines.length);
        }
        lines.text[lines.n] = text;
        lines.length[lines.n++] = length;
        text = NULL;
        room = 0;
    }
    fclose(file);
    if (!lines.n) { fprintf(stderr, "%s: no lines\n", path); exit(1); }
    return lines;
}

static void dial(struct client *client, const char *path)
{
    struct sockaddr_un address = { .sun_family = AF_UNIX };
    strncpy(address.sun_path, path, sizeof address.sun_path - 1);
    client->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (client->fd < 0) fail("socket");
    /* A server that is slow to accept makes us wait here, which counts. */
    while (connect(client->fd, (struct sockaddr *) &address, sizeof address) < 0) {
        if (errno != EAGAIN && errno != EINTR) fail("connect");
        usleep(100);
    }
    fcntl(client->fd, F_SETFL, O_NONBLOCK);
    struct epoll_event event = { .events = EPOLLIN, .data.ptr = client };
    if (epoll_ctl(epoll, EPOLL_CTL_ADD, client->fd, &event) < 0) fail("epoll_ctl");
}

/* Sends what is left; asks to be told of room if there is none. */
static void push(struct client *client)
{
    while (client->rest_len) {
        ssize_t n = write(client->fd, client->rest, client->rest_len);
        if (n < 0 && errno == EAGAIN) break;
        if (n < 0) fail("write");
        client->rest += n;
        client->rest_len -= n;
    }
    struct epoll_event event = { .events = EPOLLIN | (client->rest_len ? EPOLLOUT : 0), .data.ptr = client };
    if (epoll_ctl(epoll, EPOLL_CTL_MOD, client->fd, &event) < 0) fail("epoll_ctl");
}

static void say(struct client *client, const struct lines *lines)
{
    size_t at = client->line++ % lines->n;
    client->rest = lines->text[at];
    client->rest_len = lines->length[at];
    client->sent_s = now_s();
    while (client->rest_len) {
        ssize_t n = write(client->fd, client->rest, client->rest_len);
        if (n < 0) {
            if (errno != EAGAIN) fail("write");
            push(client);
            return;
        }
        client->rest += n;
        client->rest_len -= n;
    }
}

/* Counts the texts that end in these bytes. */
static void scan(struct client *client, const char *p, const char *end)
{
    for (; p < end; p++) {
        if (client->in_string) {
            if (client->escaped) { client->escaped = false; continue; }
            while (p < end && *p != '"' && *p != '\\') p++;
            if (p == end) return;
            if (*p == '\\') client->escaped = true;
            else client->in_string = false;
            continue;
        }
        switch (*p) {
        case '"': client->in_string = true; break;
        case '{': case '[': client->depth++; break;
        case '}': case ']': if (!--client->depth) client->texts++; break;
        default: break;
        }
    }
}

/* Looks for numbers behind `NB_CFG`. */
static void look_for_nb_cfg(struct client *client, const char *p, const char *end)
{
    for (; p < end; p++) {
        if (client->matched == sizeof NB_CFG - 1) {
            if (*p >= '0' && *p <= '9') { client->number = 10 * client->number + *p - '0'; continue; }
            if (client->number > client->heard) client->heard = client->number;
            client->matched = 0;
        }
        if (*p == NB_CFG[client->matched]) client->matched++;
        else client->matched = *p == NB_CFG[0];
        if (client->matched == sizeof NB_CFG - 1) client->number = 0;
    }
}

/* Waits for events and reads; returns how many texts became complete. `came` is called for each client that has some. */
static unsigned long turn(int timeout_ms, void (*came)(struct client *, void *), void *data)
{
    struct epoll_event events[EVENTS];
    int n = epoll_wait(epoll, events, EVENTS, timeout_ms);
    if (n < 0 && errno != EINTR) fail("epoll_wait");
    unsigned long total = 0;
    for (int i = 0; i < n; i++) {
        struct client *client = events[i].data.ptr;
        if (!client) continue;
        if (events[i].events & EPOLLOUT) push(client);
        if (!(events[i].events & (EPOLLIN | EPOLLHUP | EPOLLERR))) continue;
        unsigned long before = client->texts;
        ssize_t got = read(client->fd, in, sizeof in);
        if (got < 0 && errno == EAGAIN) continue;
        if (got <= 0) { fprintf(stderr, "the server closed a connection\n"); exit(1); }
        bytes_read += got;
        if (is_chassis) look_for_nb_cfg(client, in, in + got);
        scan(client, in, in + got);
        if (client->texts > before) {
            total += client->texts - before;
            if (came) came(client, data);
        }
    }
    return total;
}

static void wait_for_texts(unsigned long wanted)
{
    double last_s = now_s();
    for (unsigned long have = 0; have < wanted;) {
        unsigned long n = turn(1000, NULL, NULL);
        if (n) last_s = now_s();
        have += n;
        if (!n && now_s() - last_s > PATIENCE_MS / 1000) { fprintf(stderr, "no answer\n"); exit(1); }
    }
}

static void again(struct client *client, void *lines)
{
    if (n_samples < SAMPLES) samples[n_samples] = now_s() - client->sent_s;
    n_samples++;
    say(client, lines);
}

/* Has a chassis confirm what it has heard of. */
static void confirm(struct client *client, void *clients)
{
    if (client->rest_len || client->heard <= client->confirmed) return;
    client->confirmed = client->heard;
    client->rest = client->confirmation;
    client->rest_len = snprintf(client->confirmation, sizeof client->confirmation,
        "{\"id\":2,\"method\":\"transact\",\"params\":[\"OVN_Southbound\",{\"op\":\"update\",\"table\":\"Chassis_Private\","
        "\"where\":[[\"name\",\"==\",\"hv%zu\"]],\"row\":{\"nb_cfg\":%ld}}]}",
        (size_t) (client - (struct client *) clients) + 1, client->heard);
    push(client);
}

/* Clients that have sent all lines and have all answers. */
static size_t done;

static void next(struct client *client, void *lines)
{
    if (client->texts < ((struct lines *) lines)->n) say(client, lines);
    else done++;
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *) a, y = *(const double *) b;
    return (x > y) - (x < y);
}

static void print_samples(const char *what)
{
    size_t n = n_samples < SAMPLES ? n_samples : SAMPLES;
    if (!n) { fprintf(stderr, "nothing came\n"); exit(1); }
    qsort(samples, n, sizeof *samples, by_size);
    printf("\"%s\": {\"n\": %zu, \"p50\": %.6f, \"p90\": %.6f, \"p99\": %.6f, \"max\": %.6f}", what, n_samples, samples[n / 2],
           samples[n * 9 / 10], samples[n * 99 / 100], samples[n - 1]);
}

int main(int argc, char **argv)
{
    const char *mode = argc > 4 ? argv[4] : "";
    int words = !strcmp(mode, "answers") || !strcmp(mode, "through") || !strcmp(mode, "gaps") || !strcmp(mode, "chassis") ? 5 : !strcmp(mode, "loop") ? 6 : !strcmp(mode, "hear") ? 7 : 0;
    if (argc != words || atoi(argv[2]) < 1) {
        fprintf(stderr, "usage: clients SOCKET N FILE answers|through|loop SECONDS|hear COUNT FILE2|gaps|chassis\n");
        return 2;
    }
    size_t n = atoi(argv[2]);
    struct lines lines = read_lines(argv[3]);
    struct client *clients = calloc(n + 1, sizeof *clients);
    samples = malloc(SAMPLES * sizeof *samples);
    epoll = epoll_create1(EPOLL_CLOEXEC);
    if (epoll < 0 || !clients || !samples) fail("start");
    is_chassis = !strcmp(mode, "chassis");
    double start_s = now_s();
    for (size_t i = 0; i < n; i++) {
        clients[i].line = i;
        dial(&clients[i], argv[1]);
        say(&clients[i], &lines);
    }
    if (!strcmp(mode, "answers")) {
        wait_for_texts(n);
        printf("{\"seconds\": %.6f, \"bytes\": %llu}\n", now_s() - start_s, bytes_read);
    } else if (!strcmp(mode, "through")) {
        while (done < n) turn(1000, next, &lines);
        printf("{\"seconds\": %.6f}\n", now_s() - start_s);
    } else if (!strcmp(mode, "loop")) {
        double seconds = atof(argv[5]);
        while (now_s() - start_s < seconds) turn(100, again, &lines);
        printf("{\"seconds\": %.6f, ", now_s() - start_s);
        print_samples("answers");
        printf("}\n");
    } else if (is_chassis) {
        wait_for_texts(n);
        double seconds = now_s() - start_s;
        unsigned long long first_bytes = bytes_read;
        for (size_t i = 0; i < n; i++) confirm(&clients[i], clients);
        printf("ready\n");
        fflush(stdout);
        char byte;
        fcntl(STDIN_FILENO, F_SETFL, O_NONBLOCK);
        while (read(STDIN_FILENO, &byte, 1) < 0) turn(100, confirm, clients);
        printf("{\"seconds\": %.6f, \"first_bytes\": %llu, \"bytes\": %llu}\n", seconds, first_bytes, bytes_read);
    } else if (!strcmp(mode, "gaps")) {
        struct epoll_event event = { .events = EPOLLIN, .data.ptr = NULL };
        if (epoll_ctl(epoll, EPOLL_CTL_ADD, STDIN_FILENO, &event) < 0) fail("epoll_ctl");
        printf("ready\n");
        fflush(stdout);
        char byte;
        fcntl(STDIN_FILENO, F_SETFL, O_NONBLOCK);
        while (read(STDIN_FILENO, &byte, 1) < 0) turn(100, again, &lines);
        printf("{\"seconds\": %.6f, ", now_s() - start_s);
        print_samples("answers");
        printf("}\n");
    } else {
        wait_for_texts(n);
        struct lines changes = read_lines(argv[6]);
        struct client *writer = &clients[n];
        dial(writer, argv[1]);
        printf("ready\n");
        fflush(stdout);
        for (long left = atol(argv[5]); left > 0; left--) {
            double begin_s = now_s();
            say(writer, &changes);
            wait_for_texts(n + 1);
            samples[n_samples++ % SAMPLES] = now_s() - begin_s;
        }
        printf("{");
        print_samples("heard");
        printf(", \"bytes\": %llu}\n", bytes_read);
    }
    return 0;
}
