/* An OpenFlow 1.4 client that costs next to nothing: it writes bytes that were made beforehand and looks no further into
 * the answers than it must, so that what is measured is the switch.
 *
 * usage: controller stream SOCKET FILE           writes the messages of FILE, then a barrier request: until its answer
 *        controller barriers SOCKET FILE         the same, a barrier behind each message, and waits for its answer
 *        controller stats SOCKET flow|aggregate  statistics of all flows: until the last byte
 *        controller probe SOCKET INTERVAL_US     a barrier request now and then: how long the answers take
 *        controller gaps SOCKET INTERVAL_US      the same with echo requests, which wait for the control thread alone
 *        controller ask SOCKET N FILE            N connections in turns: each asks the requests of FILE one behind the other,
 *                                                again and again, and reads the whole answer before the next
 *        controller echo SOCKET                  sends each packet that comes to it back to the port that it came in on
 *        controller flood SOCKET FILE [deaf]     writes FILE again and again, and reads the answers, or does not
 * SOCKET is the path of a management socket. `probe`, `gaps`, `ask`, `echo` and `flood` go on until their standard input ends, and print
 * "ready" first. Each prints one JSON line at its end.
 * build: cc -O2 -o controller controller.c */
#define _GNU_SOURCE
#include "clock.h"
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum { VERSION = 5, HEADER = 8, HELLO = 0, ERROR = 1, ECHO_REQUEST = 2, ECHO_REPLY = 3, SET_CONFIG = 9, PACKET_IN = 10, PACKET_OUT = 13,
       MULTIPART_REQUEST = 18, MULTIPART_REPLY = 19, BARRIER_REQUEST = 20, BARRIER_REPLY = 21 };
enum { XID = 0x0b5e55ed, SAMPLES = 1 << 20, PATIENCE_MS = 120000 };

static uint8_t in[1 << 20], out[1 << 20];
static size_t in_start, in_end, out_len;
static unsigned long errors, messages, bytes_read;

static unsigned get16(const uint8_t *p) { return p[0] << 8 | p[1]; }
static uint32_t get32(const uint8_t *p) { return (uint32_t) get16(p) << 16 | get16(p + 2); }
static void put16(uint8_t *p, unsigned v) { p[0] = v >> 8; p[1] = v; }
static void put32(uint8_t *p, uint32_t v) { put16(p, v >> 16); put16(p + 2, v & 0xffff); }

static void header(uint8_t *p, int type, unsigned length, uint32_t xid)
{
    p[0] = VERSION;
    p[1] = type;
    put16(p + 2, length);
    put32(p + 4, xid);
}

static void wait_for(int fd, short events)
{
    struct pollfd p = { .fd = fd, .events = events };
    int n = poll(&p, 1, PATIENCE_MS);
    if (n < 0) fail("poll");
    if (!n) { fprintf(stderr, "no answer in %d s\n", PATIENCE_MS / 1000); exit(1); }
}

static void write_all(int fd, const uint8_t *data, size_t length)
{
    while (length) {
        ssize_t n = write(fd, data, length);
        if (n > 0) { data += n; length -= n; }
        else if (errno == EAGAIN) wait_for(fd, POLLOUT);
        else fail("write");
    }
}

/* Reads what is there; whether anything was. */
static int fill(int fd)
{
    if (in_start) {
        memmove(in, in + in_start, in_end - in_start);
        in_end -= in_start;
        in_start = 0;
    }
    ssize_t n = read(fd, in + in_end, sizeof in - in_end);
    if (n < 0 && errno == EAGAIN) return 0;
    if (n < 0) fail("read");
    if (!n) { fprintf(stderr, "the switch closed the connection\n"); exit(1); }
    in_end += n;
    bytes_read += n;
    return 1;
}

/* The next whole message that was read, or none. Echo requests are answered, errors counted. */
static const uint8_t *next(int fd)
{
    while (in_end - in_start >= HEADER && in_end - in_start >= get16(in + in_start + 2)) {
        uint8_t *m = in + in_start;
        in_start += get16(m + 2);
        if (m[1] == ECHO_REQUEST) { m[1]++; write_all(fd, m, get16(m + 2)); continue; }
        if (m[1] == ERROR && errors++ < 3) {
            fprintf(stderr, "error %u, %u\n", get16(m + 8), get16(m + 10));
        }
        messages++;
        return m;
    }
    return NULL;
}

/* Waits for a message of a type; NULL when standard input ends before, if that is looked at. */
static const uint8_t *await(int fd, int type)
{
    const uint8_t *m;
    for (;;) {
        while ((m = next(fd))) if (m[1] == type) return m;
        wait_for(fd, POLLIN);
        fill(fd);
    }
}

/* Sends a message that is nothing but a header. */
static void request(int fd, int type)
{
    uint8_t m[HEADER];
    header(m, type, HEADER, XID);
    write_all(fd, m, HEADER);
}

static void barrier(int fd)
{
    request(fd, BARRIER_REQUEST);
}

static int connect_to(const char *path)
{
    struct sockaddr_un address = { .sun_family = AF_UNIX };
    int fd = socket(AF_UNIX, SOCK_STREAM, 0), room = 4 << 20;
    uint8_t hello[HEADER];
    if (fd < 0) fail("socket");
    if (strlen(path) >= sizeof address.sun_path) { fprintf(stderr, "%s: too long\n", path); exit(1); }
    strcpy(address.sun_path, path);
    if (connect(fd, (struct sockaddr *) &address, sizeof address)) fail(path);
    setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &room, sizeof room);
    fcntl(fd, F_SETFL, O_NONBLOCK);
    header(hello, HELLO, HEADER, 1);
    write_all(fd, hello, HEADER);
    await(fd, HELLO);
    barrier(fd);
    await(fd, BARRIER_REPLY);
    errors = messages = bytes_read = 0;
    return fd;
}

static uint8_t *read_file(const char *path, size_t *length)
{
    FILE *file = fopen(path, "rb");
    if (!file || fseek(file, 0, SEEK_END)) fail(path);
    *length = ftell(file);
    rewind(file);
    uint8_t *data = malloc(*length + 1);
    if (!data || fread(data, 1, *length, file) != *length) fail(path);
    fclose(file);
    return data;
}

/* Writes data as far as the socket takes it while it reads answers, to which it listens until the barrier's. */
static int stream(const char *path, const char *name)
{
    size_t length, at = 0;
    uint8_t *data = read_file(name, &length);
    int fd = connect_to(path), done = 0;
    const uint8_t *m;
    double start = now_s();
    data = realloc(data, length + HEADER);
    if (!data) fail("memory");
    header(data + length, BARRIER_REQUEST, HEADER, XID);
    length += HEADER;
    while (!done) {
        if (at < length) {
            ssize_t n = write(fd, data + at, length - at);
            if (n > 0) at += n;
            else if (errno != EAGAIN) fail("write");
        }
        wait_for(fd, at < length ? POLLIN | POLLOUT : POLLIN);
        fill(fd);
        while ((m = next(fd))) done |= m[1] == BARRIER_REPLY && get32(m + 4) == XID;
    }
    printf("{\"seconds\": %.6f, \"errors\": %lu}\n", now_s() - start, errors);
    return 0;
}

static int barriers(const char *path, const char *name)
{
    size_t length, at = 0, n = 0;
    uint8_t *data = read_file(name, &length), both[0x10000 + HEADER];
    int fd = connect_to(path);
    double start = now_s();
    for (; at < length; at += get16(data + at + 2), n++) {
        size_t one = get16(data + at + 2);
        memcpy(both, data + at, one);
        header(both + one, BARRIER_REQUEST, HEADER, XID);
        write_all(fd, both, one + HEADER);
        await(fd, BARRIER_REPLY);
    }
    printf("{\"seconds\": %.6f, \"errors\": %lu, \"messages\": %zu}\n", now_s() - start, errors, n);
    return 0;
}

static int stats(const char *path, int type)
{
    uint8_t request[56] = { 0 };
    int fd = connect_to(path);
    const uint8_t *m;
    double start = now_s();
    header(request, MULTIPART_REQUEST, sizeof request, XID);
    put16(request + 8, type);
    request[16] = 0xff;                  /* all tables, ports and groups, any cookie, an empty match */
    put32(request + 20, UINT32_MAX);
    put32(request + 24, UINT32_MAX);
    put16(request + 48, 1);
    put16(request + 50, 4);
    write_all(fd, request, sizeof request);
    do m = await(fd, MULTIPART_REPLY); while (get16(m + 10) & 1);
    printf("{\"seconds\": %.6f, \"bytes\": %lu, \"messages\": %lu, \"errors\": %lu}\n", now_s() - start, bytes_read, messages, errors);
    return 0;
}

static int over(void)
{
    struct pollfd p = { .fd = 0, .events = POLLIN };
    char c;
    return poll(&p, 1, 0) > 0 && read(0, &c, 1) <= 0;
}

static void ready(void)
{
    puts("ready");
    fflush(stdout);
}

static int ascending(const void *a, const void *b)
{
    float x = *(const float *) a, y = *(const float *) b;
    return (x > y) - (x < y);
}

static int probe(const char *path, long interval_us, int type, int answer)
{
    static float us[SAMPLES];
    int fd = connect_to(path);
    size_t n = 0;
    struct timespec pause = { .tv_sec = interval_us / 1000000, .tv_nsec = interval_us % 1000000 * 1000 };
    prctl(PR_SET_TIMERSLACK, 1);
    ready();
    while (!over() && n < SAMPLES) {
        double start = now_s();
        request(fd, type);
        await(fd, answer);
        us[n++] = (now_s() - start) * 1e6;
        nanosleep(&pause, NULL);
    }
    qsort(us, n, sizeof *us, ascending);
    if (!n) us[n++] = 0;
    printf("{\"samples\": %zu, \"median_us\": %.1f, \"p99_us\": %.1f, \"longest_us\": %.1f}\n",
           n, us[n / 2], us[n * 99 / 100], us[n - 1]);
    return 0;
}

static void flush(int fd)
{
    write_all(fd, out, out_len);
    out_len = 0;
}

static int echo(const char *path)
{
    uint8_t config[12] = { 0 };
    int fd = connect_to(path);
    unsigned long packets = 0;
    struct pollfd p[2] = { { .fd = fd, .events = POLLIN }, { .fd = 0, .events = POLLIN } };
    const uint8_t *m;
    header(config, SET_CONFIG, sizeof config, 2);
    put16(config + 10, 0xffff);
    write_all(fd, config, sizeof config);
    barrier(fd);
    await(fd, BARRIER_REPLY);
    ready();
    for (;;) {
        if (poll(p, 2, -1) < 0) fail("poll");
        if (p[1].revents && over()) break;
        if (!p[0].revents) continue;
        fill(fd);
        while ((m = next(fd))) {
            if (m[1] != PACKET_IN) continue;
            unsigned match = get16(m + 26), data = 24 + (match + 7) / 8 * 8 + 2, length = get16(m + 2) - data;
            uint32_t port = get32(m + 32);    /* the first field of the match is the port, in both switches */
            if (get32(m + 28) != 0x80000004 || length + 64 > sizeof out) { fprintf(stderr, "strange packet-in\n"); exit(1); }
            if (out_len + length + 64 > sizeof out) flush(fd);
            uint8_t *o = out + out_len;
            memset(o, 0, 40);
            header(o, PACKET_OUT, 40 + length, 3);
            put32(o + 8, UINT32_MAX);
            put32(o + 12, port);
            put16(o + 16, 16);
            put16(o + 26, 16);                /* output, 16 bytes, back where it came from */
            put32(o + 28, 0xfffffff8);
            memcpy(o + 40, m + data, length);
            out_len += 40 + length;
            packets++;
        }
        flush(fd);
    }
    printf("{\"packets\": %lu, \"errors\": %lu}\n", packets, errors);
    return 0;
}

static int flood(const char *path, const char *name, int deaf)
{
    size_t length, at = 0;
    uint8_t *data = read_file(name, &length);
    int fd = connect_to(path);
    unsigned long rounds = 0;
    errors = 3;                               /* they are expected */
    ready();
    for (;;) {
        struct pollfd p[2] = { { .fd = fd, .events = deaf ? POLLOUT : POLLIN | POLLOUT }, { .fd = 0, .events = POLLIN } };
        if (poll(p, 2, -1) < 0) fail("poll");
        if (p[1].revents && over()) break;
        if (p[0].revents & (POLLIN | POLLHUP | POLLERR) && !deaf) {
            in_start = in_end = 0;
            fill(fd);
        }
        if (p[0].revents & POLLOUT) {
            ssize_t n = write(fd, data + at, length - at);
            if (n > 0) at += n;
            else if (errno != EAGAIN) fail("write");
            if (at == length) { at = 0; rounds++; }
        }
    }
    printf("{\"rounds\": %lu, \"bytes\": %lu}\n", rounds, bytes_read);
    return 0;
}

/* One of the connections of `ask`: where it is in its requests, and in the answer that it reads. */
struct asker { int fd; size_t at; size_t skip; size_t have; uint8_t head[12]; };

/* Sends the next request of the file, which fits into any socket. */
static void ask_next(struct asker *a, const uint8_t *data, size_t length)
{
    if (a->at == length) a->at = 0;
    size_t one = get16(data + a->at + 2);
    write_all(a->fd, data + a->at, one);
    a->at += one;
}

/* Looks through bytes of answers, of which it keeps the heads alone; how many answers ended. */
static unsigned answers_in(struct asker *a, const uint8_t *p, size_t n)
{
    unsigned ended = 0;
    while (n) {
        if (a->skip) {
            size_t take = a->skip < n ? a->skip : n;
            a->skip -= take, p += take, n -= take;
            continue;
        }
        size_t want = a->have >= HEADER && a->head[1] == MULTIPART_REPLY ? 12 : HEADER;
        if (a->have < want) {
            a->head[a->have++] = *p++, n--;
            if (a->have < HEADER || (a->head[1] == MULTIPART_REPLY && a->have < 12)) continue;
        }
        if (a->head[1] == ERROR) { fprintf(stderr, "an error for a request\n"); exit(1); }
        if (a->head[1] == ECHO_REQUEST) {
            uint8_t reply[HEADER];
            memcpy(reply, a->head, HEADER);
            reply[1] = ECHO_REPLY;
            write_all(a->fd, reply, HEADER);
        }
        ended += a->head[1] == MULTIPART_REPLY && !(get16(a->head + 10) & 1);
        a->skip = get16(a->head + 2) - a->have;
        a->have = 0;
    }
    return ended;
}

static int ask(const char *path, size_t n, const char *name)
{
    size_t length;
    uint8_t *data = read_file(name, &length);
    struct asker *all = calloc(n, sizeof *all);
    unsigned long answers = 0;
    int epoll = epoll_create1(0), end = 0;
    struct epoll_event event = { .events = EPOLLIN, .data.ptr = NULL }, events[64];
    if (!all || epoll < 0 || epoll_ctl(epoll, EPOLL_CTL_ADD, 0, &event)) fail("epoll");
    for (size_t i = 0; i < n; i++) {
        all[i].fd = connect_to(path);
        event.data.ptr = &all[i];
        if (epoll_ctl(epoll, EPOLL_CTL_ADD, all[i].fd, &event)) fail("epoll_ctl");
        /* Not all ask the same at a time. */
        for (size_t k = 0; k < i % 3 && all[i].at < length; k++) all[i].at += get16(data + all[i].at + 2);
    }
    ready();
    double start = now_s();
    for (size_t i = 0; i < n; i++) ask_next(&all[i], data, length);
    while (!end) {
        int ready_now = epoll_wait(epoll, events, 64, PATIENCE_MS);
        if (ready_now <= 0) fail("epoll_wait");
        for (int i = 0; i < ready_now; i++) {
            struct asker *a = events[i].data.ptr;
            if (!a) { end = over(); continue; }
            ssize_t got = read(a->fd, in, sizeof in);
            if (got < 0 && errno == EAGAIN) continue;
            if (got <= 0) { fprintf(stderr, "the switch closed a connection\n"); exit(1); }
            bytes_read += got;
            for (unsigned more = answers_in(a, in, got); more; more--) { answers++; ask_next(a, data, length); }
        }
    }
    printf("{\"seconds\": %.6f, \"answers\": %lu, \"bytes\": %lu}\n", now_s() - start, answers, bytes_read);
    return 0;
}

int main(int argc, char **argv)
{
    signal(SIGPIPE, SIG_IGN);
    if (argc == 4 && !strcmp(argv[1], "stream")) return stream(argv[2], argv[3]);
    if (argc == 4 && !strcmp(argv[1], "barriers")) return barriers(argv[2], argv[3]);
    if (argc == 4 && !strcmp(argv[1], "stats")) return stats(argv[2], strcmp(argv[3], "flow") ? 2 : 1);
    if (argc == 4 && !strcmp(argv[1], "probe")) return probe(argv[2], atol(argv[3]), BARRIER_REQUEST, BARRIER_REPLY);
    if (argc == 4 && !strcmp(argv[1], "gaps")) return probe(argv[2], atol(argv[3]), ECHO_REQUEST, ECHO_REPLY);
    if (argc == 5 && !strcmp(argv[1], "ask")) return ask(argv[2], atol(argv[3]), argv[4]);
    if (argc == 3 && !strcmp(argv[1], "echo")) return echo(argv[2]);
    if (argc == 4 && !strcmp(argv[1], "flood")) return flood(argv[2], argv[3], 0);
    if (argc == 5 && !strcmp(argv[1], "flood")) return flood(argv[2], argv[3], 1);
    fprintf(stderr, "usage: see the top of controller.c\n");
    return 2;
}
