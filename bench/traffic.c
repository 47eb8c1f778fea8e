/* Packets at a fixed rate onto a network device, and counting what a device receives, both over packet sockets: no
 * address, neighbour or socket buffer of a host is involved, so what is lost, the switch in between has lost.
 *
 * usage: traffic send DEVICE PCAP RATE SECONDS   sends the packets of PCAP in their order, again and again, RATE a second
 *        traffic count DEVICE                    counts IPv4 packets that come in, until its standard input ends
 * Each prints one JSON line at its end; `count` prints "ready" first.
 * build: cc -O2 -o traffic traffic.c */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <net/if.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define BATCH 64
#define PCAP_HEADER 24
#define RECORD_HEADER 16
/* How often the sender wakes up: what is due since then goes out together. */
#define TICK_NS 100000

static void fail(const char *what)
{
    perror(what);
    exit(1);
}

static double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec / 1e9;
}

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

int main(int argc, char **argv)
{
    if (argc == 6 && !strcmp(argv[1], "send")) return send_packets(argv[2], argv[3], atof(argv[4]), atof(argv[5]));
    if (argc == 3 && !strcmp(argv[1], "count")) return count_packets(argv[2]);
    fprintf(stderr, "usage: traffic send DEVICE PCAP RATE SECONDS | traffic count DEVICE\n");
    return 2;
}
