/* Sending by an AF_XDP socket that only sends: frames are written into memory that is shared with the kernel, and one
 * system call sends many. It needs no XDP program; in copy mode every device takes it. */
#ifndef XSK_H
#define XSK_H
#include "clock.h"
#include <errno.h>
#include <linux/if_xdp.h>
#include <net/if.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>

#ifndef AF_XDP
#define AF_XDP 44
#endif
#ifndef SOL_XDP
#define SOL_XDP 283
#endif
/* Frames that one system call may send; kernels before 6.17 do not know it and send 32. */
#define XSK_SEND_BUDGET 9

enum { XSK_FRAMES = 4096, XSK_FRAME = 2048, XSK_RING = 2048 };

struct xsk_ring { uint32_t *producer, *consumer; void *entries; };

struct xsk {
    int fd;
    uint8_t *memory;
    struct xsk_ring send, completed;
    uint64_t free[XSK_FRAMES];      /* addresses of frames that nobody uses */
    unsigned n_free;
    uint32_t produced;
};

static inline int xsk_map(struct xsk *x, struct xsk_ring *ring, const struct xdp_ring_offset *at, size_t entry, uint64_t page)
{
    uint8_t *map = mmap(NULL, at->desc + XSK_RING * entry, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, x->fd, page);
    if (map == MAP_FAILED) return -1;
    *ring = (struct xsk_ring) { (uint32_t *) (map + at->producer), (uint32_t *) (map + at->consumer), map + at->desc };
    return 0;
}

/* A socket on queue 0 of `device`; -1 and errno if the kernel has none for it. */
static inline int xsk_open(struct xsk *x, const char *device)
{
    struct xdp_umem_reg region = { .len = (uint64_t) XSK_FRAMES * XSK_FRAME, .chunk_size = XSK_FRAME };
    struct xdp_mmap_offsets at;
    struct sockaddr_xdp address = { .sxdp_family = AF_XDP, .sxdp_ifindex = if_nametoindex(device), .sxdp_flags = XDP_COPY };
    socklen_t length = sizeof at;
    int size = XSK_RING, budget = XSK_RING / 2, room = 64 << 20;
    memset(x, 0, sizeof *x);
    x->fd = socket(AF_XDP, SOCK_RAW, 0);
    if (x->fd < 0) return -1;
    x->memory = mmap(NULL, region.len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    if (x->memory == MAP_FAILED) fail("memory");
    region.addr = (uintptr_t) x->memory;
    if (setsockopt(x->fd, SOL_XDP, XDP_UMEM_REG, &region, sizeof region)
        || setsockopt(x->fd, SOL_XDP, XDP_UMEM_FILL_RING, &size, sizeof size)
        || setsockopt(x->fd, SOL_XDP, XDP_UMEM_COMPLETION_RING, &size, sizeof size)
        || setsockopt(x->fd, SOL_XDP, XDP_TX_RING, &size, sizeof size)
        || getsockopt(x->fd, SOL_XDP, XDP_MMAP_OFFSETS, &at, &length)
        || xsk_map(x, &x->send, &at.tx, sizeof(struct xdp_desc), XDP_PGOFF_TX_RING)
        || xsk_map(x, &x->completed, &at.cr, sizeof(uint64_t), XDP_UMEM_PGOFF_COMPLETION_RING)
        || bind(x->fd, (struct sockaddr *) &address, sizeof address)) return -1;
    setsockopt(x->fd, SOL_XDP, XSK_SEND_BUDGET, &budget, sizeof budget);
    setsockopt(x->fd, SOL_SOCKET, SO_SNDBUFFORCE, &room, sizeof room);
    for (unsigned i = 0; i < XSK_FRAMES; i++) x->free[x->n_free++] = (uint64_t) i * XSK_FRAME;
    return 0;
}

/* Takes back the frames that the kernel has sent. */
static inline void xsk_reclaim(struct xsk *x)
{
    uint32_t end = __atomic_load_n(x->completed.producer, __ATOMIC_ACQUIRE), next = *x->completed.consumer;
    for (; next != end; next++) x->free[x->n_free++] = ((uint64_t *) x->completed.entries)[next % XSK_RING];
    __atomic_store_n(x->completed.consumer, next, __ATOMIC_RELEASE);
}

/* How many frames can be written now, at most `wanted`. What is under way never fills the completion ring. */
static inline unsigned xsk_room(struct xsk *x, unsigned wanted)
{
    xsk_reclaim(x);
    unsigned under_way = XSK_FRAMES - x->n_free;
    unsigned room = under_way < XSK_RING ? XSK_RING - under_way : 0;
    return room < wanted ? room : wanted;
}

/* The next frame to write; it leaves with the next `xsk_flush`. */
static inline uint8_t *xsk_frame(struct xsk *x, unsigned length)
{
    uint64_t address = x->free[--x->n_free];
    ((struct xdp_desc *) x->send.entries)[x->produced++ % XSK_RING] = (struct xdp_desc) { .addr = address, .len = length };
    return x->memory + address;
}

/* Has the kernel take all that was written. */
static inline void xsk_flush(struct xsk *x)
{
    double give_up = now_s() + 2;
    __atomic_store_n(x->send.producer, x->produced, __ATOMIC_RELEASE);
    while (__atomic_load_n(x->send.consumer, __ATOMIC_ACQUIRE) != x->produced) {
        if (sendto(x->fd, NULL, 0, MSG_DONTWAIT, NULL, 0) < 0 && errno != EAGAIN && errno != EBUSY && errno != ENOBUFS)
            fail("sending by AF_XDP");
        xsk_reclaim(x);
        if (now_s() > give_up) { fprintf(stderr, "the kernel does not take frames\n"); exit(1); }
    }
}
#endif
