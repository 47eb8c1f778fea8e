/* How DPDK's net_pcap ports of the peer play their frames: preloaded (LD_PRELOAD) into the daemon, this serves a capture
 * file PATH from memory if a file PATH.play describes how. DPDK's own way, `infinite_rx=1`, holds each frame in a
 * buffer of its own and so has room for some 250,000 frames; besides, it knows neither a number of times nor a rate.
 *
 * PATH.play has three numbers: how often the frames are played (0: for ever), frames a second (0: as many as are taken),
 * and 1 if the frames have other IPv4 addresses each time. The last two mean what the options `rate` and
 * `new-addresses` of our ports of type `replay` mean (crates/netdev/src/memory/playback.rs).
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

/* libpcap's, for which no header needs to be installed. */
typedef struct pcap pcap_t;
struct pcap_pkthdr {
    struct timeval ts;
    uint32_t caplen, len;
};
enum { PCAP_END = -2 };

enum { FILE_HEADER = 24, RECORD_HEADER = 16, FRAME_MAX = 2048, SOURCES = 16, WAITING_MAX = 4096 };

struct source {
    pcap_t *pcap;
    const uint8_t *data, *end, *at;
    uint64_t times, rate, gone, began_ns, allowed;
    int endless, new_addresses;
    uint16_t number;
    struct pcap_pkthdr header;
    uint8_t frame[FRAME_MAX];
};

static struct source sources[SOURCES];

static uint64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t) t.tv_sec * 1000000000 + t.tv_nsec;
}

/* A function of libpcap. DPDK loads its drivers late and keeps their libraries to itself, so that the next library in
 * the order of loading does not always lead there. */
static void *real(const char *name)
{
    void *found = dlsym(RTLD_NEXT, name);
    void *library = found ? NULL : dlopen("libpcap.so.0.8", RTLD_LAZY | RTLD_NOLOAD);
    return library ? dlsym(library, name) : found;
}

static struct source *source_of(pcap_t *pcap)
{
    for (struct source *s = sources; s < sources + SOURCES; s++) {
        if (s->pcap == pcap) {
            return s;
        }
    }
    return NULL;
}

static void describe(pcap_t *pcap, const char *path)
{
    char name[4096];
    unsigned long long times, rate;
    int new_addresses;
    struct source *s = source_of(NULL);
    snprintf(name, sizeof name, "%s.play", path);
    FILE *play = fopen(name, "r");
    if (!play || !s) {
        if (play) {
            fclose(play);
        }
        return;
    }
    int known = fscanf(play, "%llu %llu %d", &times, &rate, &new_addresses);
    fclose(play);
    int fd = open(path, O_RDONLY);
    struct stat st;
    if (known != 3 || fd < 0 || fstat(fd, &st) || st.st_size <= FILE_HEADER) {
        close(fd);
        return;
    }
    void *data = mmap(NULL, st.st_size, PROT_READ, MAP_PRIVATE | MAP_POPULATE, fd, 0);
    close(fd);
    if (data == MAP_FAILED) {
        return;
    }
    s->data = data;
    s->end = s->data + st.st_size;
    s->at = s->data + FILE_HEADER;
    s->times = times;
    s->endless = times == 0;
    s->rate = rate;
    s->gone = s->allowed = 0;
    s->began_ns = now_ns();
    s->new_addresses = new_addresses;
    s->number = 0;
    s->pcap = pcap;
}

pcap_t *pcap_open_offline(const char *path, char *error)
{
    pcap_t *(*open_offline)(const char *, char *) = real("pcap_open_offline");
    pcap_t *pcap = open_offline ? open_offline(path, error) : NULL;
    if (pcap) {
        describe(pcap, path);
    }
    return pcap;
}

void pcap_close(pcap_t *pcap)
{
    struct source *s = source_of(pcap);
    void (*close_it)(pcap_t *) = real("pcap_close");
    if (s) {
        munmap((void *) s->data, s->end - s->data);
        s->pcap = NULL;
    }
    if (close_it) {
        close_it(pcap);
    }
}

/* Whether a frame is due. */
static int due(struct source *s)
{
    if (s->allowed == 0) {
        uint64_t all = (unsigned __int128) (now_ns() - s->began_ns) * s->rate / 1000000000;
        if (all > s->gone + WAITING_MAX) {
            s->gone = all - WAITING_MAX;
        }
        s->allowed = all - s->gone;
        if (s->allowed == 0) {
            return 0;
        }
    }
    s->allowed--;
    s->gone++;
    return 1;
}

static void add(uint8_t *low, uint16_t number)
{
    uint16_t sum = (uint16_t) (low[0] << 8 | low[1]) + number;
    low[0] = sum >> 8;
    low[1] = sum & 0xff;
}

static const uint8_t *renumbered(struct source *s, const uint8_t *frame, uint32_t len)
{
    if (len < 34 || len > FRAME_MAX || frame[12] != 8 || frame[13] != 0) {
        return frame;
    }
    memcpy(s->frame, frame, len);
    int up = memcmp(frame + 26, frame + 30, 4) < 0;
    add(s->frame + 28, up ? s->number : -s->number);
    add(s->frame + 32, up ? -s->number : s->number);
    return s->frame;
}

int pcap_next_ex(pcap_t *pcap, struct pcap_pkthdr **header, const uint8_t **data)
{
    struct source *s = source_of(pcap);
    if (!s) {
        int (*next)(pcap_t *, struct pcap_pkthdr **, const uint8_t **) = real("pcap_next_ex");
        return next ? next(pcap, header, data) : -1;
    }
    if (s->at + RECORD_HEADER > s->end) {
        if (!s->endless && s->times <= 1) {
            return PCAP_END;
        }
        s->times--;
        s->number++;
        s->at = s->data + FILE_HEADER;
    }
    if (s->rate && !due(s)) {
        return 0;
    }
    uint32_t len;
    memcpy(&len, s->at + 8, sizeof len);
    const uint8_t *frame = s->at + RECORD_HEADER;
    if (len > s->end - frame) {
        return PCAP_END;
    }
    s->at = frame + len;
    s->header.caplen = s->header.len = len;
    *header = &s->header;
    *data = s->new_addresses ? renumbered(s, frame, len) : frame;
    return 1;
}
