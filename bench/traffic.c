/* Packets at a fixed rate onto a network device, and counting what a device receives, both over packet sockets: no
 * address, neighbour or socket buffer of a host is involved, so what is lost, the switch in between has lost.
 *
 * usage: traffic send DEVICE PCAP RATE SECONDS   sends the packets of PCAP in their order, again and again, RATE a second
 *        traffic count DEVICE                    counts IPv4 packets that come in, until its standard input ends
 *        traffic gaps RATE new|known NAMESPACE DEVICE NAMESPACE DEVICE
 *                                                sends numbered packets by the first device, each of a flow of its own or
 *                                                all of one, and looks when they come in by the second, until its
 *                                                standard input ends
 *        traffic window DEVICE PACKETS SECONDS   has so many packets under way that come back by the same device
 * Each prints one JSON line at its end; `count` and `gaps` print "ready" first.
 * build: cc -O2 -pthread -o traffic traffic.c */
#define _GNU_SOURCE
#include "clock.h"
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <net/if.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#define BATCH 64
#define PCAP_HEADER 24
#define RECORD_HEADER 16
/* How often the sender wakes up: what is due since then goes out together. */
#define TICK_NS 100000

/* A packet socket on `device` that receives packets of `protocol` only (0: none). */
static int packet_socket(const char *device, int protocol)
{
    int fd = socket(AF_PACKET, SOCK_RAW, 0);
    struct sockaddr_ll address = {
        .sll_family = AF_PACKET, .sll_protocol = htons(protocol), .sll_ifindex = if_nametoindex(device)
    };
    if (fd < 0) fail("socket");
    if (!address.sll_ifindex) fail(device);
    if (bind(fd, (struct sockaddr *) &address, sizeof address)) fail("bind");
    return fd;
}

/* The packets of a capture file in this machine's byte order. */
static struct iovec *read_pcap(const char *path, size_t *count)
{
    FILE *file = fopen(path, "rb");
    struct iovec *packets = NULL;
    uint8_t header[PCAP_HEADER];
    uint32_t record[RECORD_HEADER / 4];
    *count = 0;
    if (!file) fail(path);
    if (fread(header, sizeof header, 1, file) != 1) fail(path);
    while (fread(record, sizeof record, 1, file) == 1) {
        uint32_t length = record[2];
        if (length < 14 || length > 65535) { fprintf(stderr, "%s: a packet of %u bytes\n", path, length); exit(1); }
        if ((*count & (*count - 1)) == 0) {     /* full: doubled at each power of two */
            packets = realloc(packets, (*count ? 2 * *count : 1) * sizeof *packets);
            if (!packets) fail("memory");
        }
        packets[*count] = (struct iovec) { .iov_base = malloc(length), .iov_len = length };
        if (!packets[*count].iov_base || fread(packets[*count].iov_base, length, 1, file) != 1) fail(path);
        ++*count;
    }
    fclose(file);
    if (!*count) { fprintf(stderr, "%s: no packets\n", path); exit(1); }
    return packets;
}

static int send_packets(const char *device, const char *pcap, double rate, double seconds)
{
    int fd = packet_socket(device, 0), one = 1;
    size_t count, next = 0;
    struct iovec *packets = read_pcap(pcap, &count);
    struct mmsghdr batch[BATCH];
    uint64_t sent = 0, refused = 0, due;
    double start, t;
    setsockopt(fd, SOL_PACKET, PACKET_QDISC_BYPASS, &one, sizeof one);
    prctl(PR_SET_TIMERSLACK, 1);
    memset(batch, 0, sizeof batch);
    start = now_s();
    while ((t = now_s() - start) < seconds) {
        due = t * rate;
        while (sent + refused < due) {
            unsigned wanted = due - sent - refused < BATCH ? due - sent - refused : BATCH;
            for (unsigned i = 0; i < wanted; i++) {
                batch[i].msg_hdr.msg_iov = &packets[(next + i) % count];
                batch[i].msg_hdr.msg_iovlen = 1;
            }
            int done = sendmmsg(fd, batch, wanted, 0);
            if (done > 0) { sent += done; next = (next + done) % count; } else { refused++; }
            if (now_s() - start >= seconds) break;
        }
        struct timespec tick = { .tv_nsec = TICK_NS };
        nanosleep(&tick, NULL);
    }
    t = now_s() - start;
    printf("{\"sent\": %lu, \"refused\": %lu, \"pps\": %.0f}\n", (unsigned long) sent, (unsigned long) refused, sent / t);
    return 0;
}

/* The kernel counts what it would put into the socket, whether there is room or not; nothing is read. */
static int count_packets(const char *device)
{
    int fd = packet_socket(device, ETH_P_IP);
    struct tpacket_stats stats;
    socklen_t length = sizeof stats;
    char c;
    int small = 1;
    setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &small, sizeof small);
    getsockopt(fd, SOL_PACKET, PACKET_STATISTICS, &stats, &length);     /* starts from zero */
    puts("ready");
    fflush(stdout);
    while (read(STDIN_FILENO, &c, 1) > 0) continue;
    length = sizeof stats;
    if (getsockopt(fd, SOL_PACKET, PACKET_STATISTICS, &stats, &length)) fail("statistics");
    printf("{\"received\": %u}\n", stats.tp_packets);
    return 0;
}

/* ---- When numbered packets leave and come in. */

enum { NUMBERED = 64, NUMBER_AT = 42, WAY_MAX = 1 << 22 };

/* An IPv4 packet with UDP and a number in its payload. */
static void numbered(uint8_t *p, uint32_t number, int new)
{
    static const uint8_t head[NUMBER_AT] = {
        2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0, 0x45, 0, 0, NUMBERED - 14, 0, 0, 0, 0, 64, 17, 0, 0, 10, 99, 0, 1, 10, 99, 0, 2,
        0x10, 0, 0x20, 0, 0, NUMBERED - 34, 0, 0
    };
    uint32_t sum = 0, order = htonl(number);
    memset(p, 0, NUMBERED);
    memcpy(p, head, sizeof head);
    if (new) {
        p[27] = 100; p[28] = number >> 16; p[29] = number >> 8;     /* the source, 10.100.x.x, and its port */
        p[35] = number;
    }
    for (int i = 14; i < 34; i += 2) sum += p[i] << 8 | p[i + 1];
    while (sum >> 16) sum = (sum & 0xffff) + (sum >> 16);
    p[24] = ~sum >> 8;
    p[25] = ~sum;
    memcpy(p + NUMBER_AT, &order, sizeof order);
}

/* When each left and came in, by the clock of the day in seconds; 0: never. */
static double *left, *came;
static volatile uint32_t n_sent;
static volatile int done;
static int from_fd, to_fd, all_new;
static double rate_pps;

static double day_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return t.tv_sec + t.tv_nsec / 1e9;
}

/* A socket on a device of another network namespace; this thread stays there. */
static int socket_in(const char *namespace, const char *device, int protocol)
{
    char path[256];
    int ns;
    snprintf(path, sizeof path, "/run/netns/%s", namespace);
    ns = open(path, O_RDONLY);
    if (ns < 0 || setns(ns, CLONE_NEWNET)) fail(path);
    close(ns);
    return packet_socket(device, protocol);
}

/* What must not wait for others, to show what the switch does and not what the machine does. */
static void come_first(void)
{
    struct sched_param first = { .sched_priority = 10 };
    if (sched_setscheduler(0, SCHED_FIFO, &first)) fail("sched_setscheduler");
}

static void *send_numbered(void *unused)
{
    uint8_t packet[NUMBERED];
    double start = now_s();
    come_first();
    prctl(PR_SET_TIMERSLACK, 1);
    while (!done && n_sent < WAY_MAX) {
        struct timespec tick = { .tv_nsec = TICK_NS };
        uint32_t due = (now_s() - start) * rate_pps;
        while (n_sent < due && n_sent < WAY_MAX) {
            numbered(packet, n_sent, all_new);
            left[n_sent] = day_s();
            if (send(from_fd, packet, NUMBERED, 0) != NUMBERED) left[n_sent] = 0;
            n_sent++;
        }
        nanosleep(&tick, NULL);
    }
    return unused;
}

/* The kernel notes when a packet comes in; how late this thread reads it does not matter. */
static void *receive_numbered(void *unused)
{
    uint8_t packet[2048], control[256];
    come_first();
    for (;;) {
        struct iovec part = { packet, sizeof packet };
        struct msghdr m = { .msg_iov = &part, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control };
        ssize_t n = recvmsg(to_fd, &m, 0);
        struct cmsghdr *c = n < 0 ? NULL : CMSG_FIRSTHDR(&m);
        uint32_t number;
        if (n < 0 && done) return unused;
        if (n < NUMBER_AT + 4 || !c || c->cmsg_type != SCM_TIMESTAMPNS || packet[23] != 17) continue;
        struct timespec at;
        memcpy(&at, CMSG_DATA(c), sizeof at);
        memcpy(&number, packet + NUMBER_AT, sizeof number);
        number = ntohl(number);
        if (number < WAY_MAX) came[number] = at.tv_sec + at.tv_nsec / 1e9;
    }
}

/* The longest time in which nothing came in of what left, less that in which nothing left. */
static int gaps(double rate, int new, char **where)
{
    pthread_t sender, receiver;
    struct timeval patience = { .tv_usec = 200000 };
    double longest = 0, last_came = 0, last_left = 0, idle = 0, most = 0, sum = 0;
    unsigned lost = 0, received = 0, one = 1, room = 64 << 20, longest_at = 0;
    char c;
    left = calloc(WAY_MAX, sizeof *left);
    came = calloc(WAY_MAX, sizeof *came);
    if (!left || !came) fail("memory");
    rate_pps = rate;
    all_new = new;
    from_fd = socket_in(where[0], where[1], 0);
    setsockopt(from_fd, SOL_PACKET, PACKET_QDISC_BYPASS, &one, sizeof one);
    /* Paths of namespaces are those of the first one's mounts, which stay. */
    to_fd = socket_in(where[2], where[3], ETH_P_IP);
    setsockopt(to_fd, SOL_SOCKET, SO_RCVBUFFORCE, &room, sizeof room);
    setsockopt(to_fd, SOL_SOCKET, SO_TIMESTAMPNS, &one, sizeof one);
    setsockopt(to_fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    if (pthread_create(&receiver, NULL, receive_numbered, NULL)) fail("thread");
    if (pthread_create(&sender, NULL, send_numbered, NULL)) fail("thread");
    puts("ready");
    fflush(stdout);
    while (read(0, &c, 1) > 0) continue;
    done = 1;
    pthread_join(sender, NULL);
    pthread_join(receiver, NULL);
    for (uint32_t i = 0; i < n_sent; i++) {
        if (!left[i]) continue;
        if (last_left && left[i] - last_left > idle) idle = left[i] - last_left;
        last_left = left[i];
        if (!last_came) last_came = left[i];
        if (!came[i]) { lost++; continue; }
        received++;
        sum += came[i] - left[i];
        if (came[i] - left[i] > most) most = came[i] - left[i];
        if (last_came && came[i] - last_came - idle > longest) { longest = came[i] - last_came - idle; longest_at = i; }
        if (came[i] > last_came) last_came = came[i];
        idle = 0;
    }
    /* What is lost to the stream's end is a pause, too. */
    if (received && last_left - last_came - idle > longest) { longest = last_left - last_came - idle; longest_at = n_sent; }
    printf("{\"sent\": %u, \"received\": %u, \"lost\": %u, \"gap_ms\": %.3f, \"gap_at\": %u, \"longest_way_ms\": %.3f, \"mean_way_us\": %.1f}\n",
           n_sent, received, lost, longest * 1e3, longest_at, most * 1e3, received ? sum / received * 1e6 : 0);
    return 0;
}

/* Packets under way, at most so many, which come back; lost ones are sent anew after a while. */
static int window(const char *device, uint32_t size, double seconds)
{
    int fd = packet_socket(device, ETH_P_IP), one = 1;
    uint8_t packet[2048];
    double start = now_s(), t = start, heard = start;
    unsigned long back = 0, lost = 0;
    uint32_t under_way = 0;
    setsockopt(fd, SOL_PACKET, PACKET_IGNORE_OUTGOING, &one, sizeof one);
    while ((t = now_s()) - start < seconds) {
        struct pollfd p = { .fd = fd, .events = POLLIN };
        for (; under_way < size; under_way++) {
            /* A number that `gaps` takes for none of its own, as both may run on one device. */
            numbered(packet, WAY_MAX + back + under_way, 0);
            if (send(fd, packet, NUMBERED, 0) != NUMBERED && errno != ENOBUFS) fail("send");
        }
        if (poll(&p, 1, 10) < 0) fail("poll");
        for (ssize_t n; (n = recv(fd, packet, sizeof packet, MSG_DONTWAIT)) > 0;) {
            if (packet[23] != 17 || n < NUMBER_AT) continue;
            heard = now_s();
            back++;
            under_way -= under_way > 0;
        }
        if (now_s() - heard > 0.1) { lost += under_way; under_way = 0; heard = now_s(); }
    }
    printf("{\"back\": %lu, \"lost\": %lu, \"pps\": %.0f, \"us\": %.1f}\n", back, lost, back / (t - start),
           back ? (t - start) * size / back * 1e6 : 0);
    return 0;
}

int main(int argc, char **argv)
{
    if (argc == 8 && !strcmp(argv[1], "gaps")) return gaps(atof(argv[2]), !strcmp(argv[3], "new"), argv + 4);
    if (argc == 5 && !strcmp(argv[1], "window")) return window(argv[2], atoi(argv[3]), atof(argv[4]));
    if (argc == 6 && !strcmp(argv[1], "send")) return send_packets(argv[2], argv[3], atof(argv[4]), atof(argv[5]));
    if (argc == 3 && !strcmp(argv[1], "count")) return count_packets(argv[2]);
    fprintf(stderr, "usage: see the top of traffic.c\n");
    return 2;
}
