/* Numbered frames with the time at which they left, from one device to another, and what became of them: how many came
 * in, in which order, and how long each was under way. Both devices are in network namespaces of this host, so one clock
 * (CLOCK_MONOTONIC) is for both.
 *
 * usage: frames [OPTION...] FROM_NAMESPACE DEVICE TO_NAMESPACE DEVICE
 *   -r RATE     frames a second; 0, as it comes: as fast as it goes
 *   -t SECONDS  how long frames are sent (1)
 *   -s BYTES    of a frame on a wire, its check sequence of 4 bytes among them: 64 to 1518 (64)
 *   -n FLOWS    that the frames belong to, each with a source address and port of its own: 1 to 65536 (1)
 *   -b WAY      how to send: xdp (AF_XDP), packet (a packet socket), or, as it comes, the first that works
 *   -c          only count what comes in: the kernel does that, and does not have to hand the frames over
 * Prints one JSON line. `refused` is what the sender could not put into its device (it is not among `sent`); `lost` is
 * what was sent and did not come. A frame is `reordered` if one of its flow that was sent later came before it (RFC 4737).
 * `unread` is what came in and this program was too slow to look at: with more than none the run is worth nothing.
 * Times under way are in microseconds, from before the system call that sends to when the kernel has the frame for this
 * program; `null` with -c.
 *
 *        frames histogram       reads nanoseconds, one a line, and prints what the histogram makes of them
 * build: cc -O2 -pthread -o frames frames.c */
#define _GNU_SOURCE
#include "clock.h"
#include "histogram.h"
#include "xsk.h"
#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <sys/prctl.h>
#include <unistd.h>

enum {
    HEADERS = 42,               /* Ethernet, IPv4, UDP */
    STAMP = 18,                 /* a mark of the run (2), number (8), time (8): just what a frame of 64 bytes has room for */
    CHECK_SEQUENCE = 4,
    FLOWS_MAX = 1 << 16,
    BATCH = 64,
    PORT = 49877,               /* where the frames go, so that they can be told from others */
};
/* Frames of a run; a bit is kept for each. */
#define FRAMES_MAX (1ull << 29)
/* At a fixed rate the sender sleeps at least so long; what is due then goes out together. */
#define TICK_NS 50000
/* What is still under way when the sender ends. */
#define DRAIN_US 200000

static struct {
    double rate, seconds;
    unsigned size, flows;
    int only_count;
    const char *way, *from[2], *to[2];
} wanted = { .seconds = 1, .size = 64, .flows = 1 };

static uint16_t run_mark;
static volatile int sending_done;

static uint64_t clock_ns(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return t.tv_sec * 1000000000ull + t.tv_nsec;
}

/* ---- Frames. */

static uint8_t (*headers)[HEADERS];

/* The first bytes of each flow's frames. There is no UDP checksum, which IPv4 allows: it would have to follow the time. */
static void make_headers(void)
{
    unsigned ip_length = wanted.size - CHECK_SEQUENCE - 14, udp_length = ip_length - 20;
    headers = calloc(wanted.flows, sizeof *headers);
    if (!headers) fail("memory");
    for (unsigned flow = 0; flow < wanted.flows; flow++) {
        uint8_t *p = headers[flow];
        uint16_t source = 1024 + flow % 50000, sum_done;
        uint32_t sum = 0;
        memcpy(p, "\2\0\0\0\0\2\2\0\0\0\0\1\x8\0\x45\0", 16);
        p[16] = ip_length >> 8; p[17] = ip_length;
        p[22] = 64; p[23] = 17;
        memcpy(p + 26, (uint8_t[]) { 10, 97, flow >> 8, flow, 10, 96, 0, 1 }, 8);
        p[34] = source >> 8; p[35] = source & 255; p[36] = PORT >> 8; p[37] = PORT & 255;
        p[38] = udp_length >> 8; p[39] = udp_length;
        for (int i = 14; i < 34; i += 2) sum += p[i] << 8 | p[i + 1];
        while (sum >> 16) sum = (sum & 0xffff) + (sum >> 16);
        sum_done = ~sum;
        p[24] = sum_done >> 8; p[25] = sum_done & 255;
    }
}

/* Only what differs: the rest of a frame's memory stays zero. */
static void write_frame(uint8_t *p, uint64_t number)
{
    uint64_t now = clock_ns(CLOCK_MONOTONIC);
    memcpy(p, headers[number % wanted.flows], HEADERS);
    memcpy(p + HEADERS, &run_mark, 2);
    memcpy(p + HEADERS + 2, &number, 8);
    memcpy(p + HEADERS + 10, &now, 8);
}

/* ---- Sending. */

struct sender {
    struct xsk *xsk;            /* NULL: a packet socket */
    int fd;
    uint8_t (*memory)[2048];
    struct iovec parts[BATCH];
    struct mmsghdr batch[BATCH];
    uint64_t sent, refused;
    double took_s;
};

/* This thread goes into a network namespace; sockets that it opens stay there. */
static void enter(const char *namespace)
{
    char path[256];
    snprintf(path, sizeof path, "/run/netns/%s", namespace);
    int fd = open(path, O_RDONLY);
    if (fd < 0 || setns(fd, CLONE_NEWNET)) fail(path);
    close(fd);
}

static int packet_socket(const char *device, int protocol, const struct sock_fprog *filter)
{
    int fd = socket(AF_PACKET, SOCK_RAW, 0);
    struct sockaddr_ll address = {
        .sll_family = AF_PACKET, .sll_protocol = htons(protocol), .sll_ifindex = if_nametoindex(device)
    };
    if (fd < 0) fail("socket");
    if (!address.sll_ifindex) fail(device);
    if (filter && setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, filter, sizeof *filter)) fail("filter");
    if (bind(fd, (struct sockaddr *) &address, sizeof address)) fail("bind");
    return fd;
}

static void open_sender(struct sender *s)
{
    static struct xsk xsk;
    int one = 1, room = 64 << 20;
    enter(wanted.from[0]);
    if (!wanted.way || !strcmp(wanted.way, "xdp")) {
        if (!xsk_open(&xsk, wanted.from[1])) { s->xsk = &xsk; return; }
        if (wanted.way) fail("AF_XDP");
        if (xsk.fd >= 0) close(xsk.fd);
    }
    s->fd = packet_socket(wanted.from[1], 0, NULL);
    setsockopt(s->fd, SOL_PACKET, PACKET_QDISC_BYPASS, &one, sizeof one);
    setsockopt(s->fd, SOL_SOCKET, SO_SNDBUFFORCE, &room, sizeof room);
    s->memory = calloc(BATCH, sizeof *s->memory);
    if (!s->memory) fail("memory");
    for (unsigned i = 0; i < BATCH; i++) {
        s->parts[i] = (struct iovec) { s->memory[i], wanted.size - CHECK_SEQUENCE };
        s->batch[i].msg_hdr = (struct msghdr) { .msg_iov = &s->parts[i], .msg_iovlen = 1 };
    }
}

/* Sends the next `count` frames, or some of them. */
static void send_batch(struct sender *s, unsigned count)
{
    if (s->xsk) {
        count = xsk_room(s->xsk, count);
        for (unsigned i = 0; i < count; i++) write_frame(xsk_frame(s->xsk, wanted.size - CHECK_SEQUENCE), s->sent + i);
        xsk_flush(s->xsk);
        s->sent += count;
        return;
    }
    for (unsigned i = 0; i < count; i++) write_frame(s->memory[i], s->sent + i);
    int done = sendmmsg(s->fd, s->batch, count, 0);
    if (done > 0) s->sent += done; else s->refused++;
}

/* What must not wait for others, to show what the switch does and not what the machine does. */
static void come_first(void)
{
    struct sched_param first = { .sched_priority = 10 };
    if (sched_setscheduler(0, SCHED_FIFO, &first)) fail("sched_setscheduler");
}

static void *send_frames(void *argument)
{
    struct sender *s = argument;
    double start, t;
    /* Whoever sends as fast as he can would never let others come. */
    if (wanted.rate > 0 && !wanted.only_count) come_first();
    prctl(PR_SET_TIMERSLACK, 1);
    start = now_s();
    while ((t = now_s() - start) < wanted.seconds && s->sent + BATCH < FRAMES_MAX) {
        uint64_t due = wanted.rate > 0 ? t * wanted.rate + 1 : UINT64_MAX;
        if (s->sent + s->refused < due) {
            uint64_t missing = due - s->sent - s->refused;
            send_batch(s, missing < BATCH ? missing : BATCH);
            continue;
        }
        double wait = due / wanted.rate - t, left = wanted.seconds - t;
        if (wait > left) wait = left;
        uint64_t ns = wait * 1e9 > TICK_NS ? wait * 1e9 : TICK_NS;
        struct timespec tick = { ns / 1000000000, ns % 1000000000 };
        nanosleep(&tick, NULL);
    }
    s->took_s = now_s() - start;
    return NULL;
}

/* ---- Receiving. */

enum { BLOCK = 1 << 20, BLOCKS = 64, BLOCK_MS = 5 };

struct receiver {
    int fd;
    uint8_t *ring;
    uint64_t received, reordered, duplicated;
    uint64_t *seen;                         /* a bit for each number */
    uint64_t next[FLOWS_MAX];               /* one more than the highest number that came in, by flow */
    struct histogram under_way;
};

static void open_receiver(struct receiver *r)
{
    /* UDP to our port; of that, as much as has the time in it. */
    static struct sock_filter program[] = {
        BPF_STMT(BPF_LD | BPF_H | BPF_ABS, 12), BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, ETH_P_IP, 0, 5),
        BPF_STMT(BPF_LD | BPF_B | BPF_ABS, 23), BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 17, 0, 3),
        BPF_STMT(BPF_LD | BPF_H | BPF_ABS, 36), BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, PORT, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, HEADERS + STAMP), BPF_STMT(BPF_RET | BPF_K, 0),
    };
    struct sock_fprog filter = { sizeof program / sizeof *program, program };
    struct tpacket_req3 request = {
        .tp_block_size = BLOCK, .tp_block_nr = BLOCKS, .tp_frame_size = 2048, .tp_frame_nr = BLOCK / 2048 * BLOCKS,
        .tp_retire_blk_tov = BLOCK_MS,
    };
    int version = TPACKET_V3, small = 1;
    struct tpacket_stats_v3 stats;
    socklen_t length = sizeof stats;
    enter(wanted.to[0]);
    r->fd = packet_socket(wanted.to[1], ETH_P_IP, &filter);
    if (wanted.only_count) {
        setsockopt(r->fd, SOL_SOCKET, SO_RCVBUF, &small, sizeof small);
    } else {
        if (setsockopt(r->fd, SOL_PACKET, PACKET_VERSION, &version, sizeof version)
            || setsockopt(r->fd, SOL_PACKET, PACKET_RX_RING, &request, sizeof request)) fail("ring");
        r->ring = mmap(NULL, (size_t) BLOCK * BLOCKS, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, r->fd, 0);
        r->seen = calloc(FRAMES_MAX / 64, sizeof *r->seen);
        if (r->ring == MAP_FAILED || !r->seen) fail("memory");
    }
    getsockopt(r->fd, SOL_PACKET, PACKET_STATISTICS, &stats, &length);      /* starts from zero */
}

/* One frame; `came_ns` by CLOCK_MONOTONIC. */
static void look_at(struct receiver *r, const uint8_t *p, unsigned length, uint64_t came_ns)
{
    uint16_t mark;
    uint64_t number, left_ns;
    if (length < HEADERS + STAMP) return;
    memcpy(&mark, p + HEADERS, 2);
    memcpy(&number, p + HEADERS + 2, 8);
    memcpy(&left_ns, p + HEADERS + 10, 8);
    if (mark != run_mark || number >= FRAMES_MAX) return;
    if (r->seen[number / 64] >> number % 64 & 1) { r->duplicated++; return; }
    r->seen[number / 64] |= 1ull << number % 64;
    r->received++;
    uint64_t *next = &r->next[number % wanted.flows];
    if (number < *next) r->reordered++; else *next = number + 1;
    histogram_add(&r->under_way, came_ns > left_ns ? came_ns - left_ns : 0);
}

/* The kernel notes by the clock of the day when a frame comes in; how late this thread looks at it does not matter. */
static void *receive_frames(void *argument)
{
    struct receiver *r = argument;
    if (wanted.rate > 0) come_first();
    for (unsigned next = 0;; next = (next + 1) % BLOCKS) {
        struct tpacket_block_desc *block = (void *) (r->ring + (size_t) next * BLOCK);
        while (!(__atomic_load_n(&block->hdr.bh1.block_status, __ATOMIC_ACQUIRE) & TP_STATUS_USER)) {
            struct pollfd p = { .fd = r->fd, .events = POLLIN };
            if (sending_done && poll(&p, 1, 2 * BLOCK_MS) == 0) return NULL;
            poll(&p, 1, 2 * BLOCK_MS);
        }
        int64_t day_is_ahead = clock_ns(CLOCK_REALTIME) - clock_ns(CLOCK_MONOTONIC);
        struct tpacket3_hdr *frame = (void *) ((uint8_t *) block + block->hdr.bh1.offset_to_first_pkt);
        for (uint32_t i = 0; i < block->hdr.bh1.num_pkts; i++) {
            uint64_t came_ns = frame->tp_sec * 1000000000ull + frame->tp_nsec - day_is_ahead;
            look_at(r, (uint8_t *) frame + frame->tp_mac, frame->tp_snaplen, came_ns);
            frame = (void *) ((uint8_t *) frame + frame->tp_next_offset);
        }
        __atomic_store_n(&block->hdr.bh1.block_status, TP_STATUS_KERNEL, __ATOMIC_RELEASE);
    }
}

static int run(void)
{
    static struct sender s;
    static struct receiver r;
    struct tpacket_stats_v3 stats = { 0 };
    socklen_t length = wanted.only_count ? sizeof(struct tpacket_stats) : sizeof stats;
    pthread_t sender, receiver;
    uint64_t received, lost;
    run_mark = getpid();
    make_headers();
    open_receiver(&r);
    /* Paths of namespaces are those of the first one's mounts, which stay. */
    open_sender(&s);
    if (!wanted.only_count && pthread_create(&receiver, NULL, receive_frames, &r)) fail("thread");
    if (pthread_create(&sender, NULL, send_frames, &s)) fail("thread");
    pthread_join(sender, NULL);
    usleep(DRAIN_US);
    sending_done = 1;
    if (!wanted.only_count) pthread_join(receiver, NULL);
    if (getsockopt(r.fd, SOL_PACKET, PACKET_STATISTICS, &stats, &length)) fail("statistics");
    received = wanted.only_count ? stats.tp_packets : r.received;
    lost = s.sent > received ? s.sent - received : 0;
    printf("{\"by\": \"%s\", \"sent\": %lu, \"refused\": %lu, \"sent_pps\": %.0f, \"received\": %lu, \"received_pps\": %.0f, "
           "\"lost\": %lu, \"unread\": %u, ",
           s.xsk ? "xdp" : "packet", (unsigned long) s.sent, (unsigned long) s.refused, s.sent / s.took_s,
           (unsigned long) received, received / s.took_s, (unsigned long) lost, wanted.only_count ? 0 : stats.tp_drops);
    if (wanted.only_count) {
        printf("\"reordered\": null, \"duplicated\": null, \"us\": null}\n");
        return 0;
    }
    printf("\"reordered\": %lu, \"duplicated\": %lu, \"us\": ", (unsigned long) r.reordered, (unsigned long) r.duplicated);
    histogram_print(&r.under_way);
    puts("}");
    return 0;
}

static int of_standard_input(void)
{
    static struct histogram h;
    unsigned long ns;
    while (scanf("%lu", &ns) == 1) histogram_add(&h, ns);
    histogram_print(&h);
    puts("");
    return 0;
}

/* A number of an option from `least` to `most`. */
static double number(const char *text, double least, double most)
{
    char *end;
    double value = strtod(text, &end);
    if (!*text || *end || !(value >= least && value <= most)) {
        fprintf(stderr, "frames: %s is no number from %.0f to %.0f\n", text, least, most);
        exit(2);
    }
    return value;
}

int main(int argc, char **argv)
{
    if (argc == 2 && !strcmp(argv[1], "histogram")) return of_standard_input();
    for (int option; (option = getopt(argc, argv, "r:t:s:n:b:c")) != -1;) {
        switch (option) {
        case 'r': wanted.rate = number(optarg, 0, 1e8); break;
        case 't': wanted.seconds = number(optarg, 0, 3600); break;
        case 's': wanted.size = number(optarg, 64, 1518); break;
        case 'n': wanted.flows = number(optarg, 1, FLOWS_MAX); break;
        case 'b': wanted.way = optarg; break;
        case 'c': wanted.only_count = 1; break;
        default: return 2;
        }
    }
    if (argc - optind != 4 || (wanted.way && strcmp(wanted.way, "xdp") && strcmp(wanted.way, "packet"))) {
        fprintf(stderr, "usage: see the top of frames.c\n");
        return 2;
    }
    wanted.from[0] = argv[optind];
    wanted.from[1] = argv[optind + 1];
    wanted.to[0] = argv[optind + 2];
    wanted.to[1] = argv[optind + 3];
    return run();
}
