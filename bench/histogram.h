/* How often which time was seen, in a fixed number of buckets: as many for each power of two, so that a bucket is never
 * wider than a 64th of what is in it. Nothing is allocated when a time is added. Times are in nanoseconds. */
#ifndef HISTOGRAM_H
#define HISTOGRAM_H
#include <stdint.h>
#include <stdio.h>

enum { PART_BITS = 6, PARTS = 1 << PART_BITS, POWERS = 40, BUCKETS = (POWERS - PART_BITS + 1) * PARTS };

struct histogram { uint64_t count, sum, most, buckets[BUCKETS]; };

/* The bucket of a time: below 64 each has its own, above that the six bits behind the first one tell. */
static inline unsigned bucket_of(uint64_t ns)
{
    if (ns < PARTS) return ns;
    unsigned power = 63 - __builtin_clzll(ns);
    if (power >= POWERS) return BUCKETS - 1;
    return (power - PART_BITS + 1) * PARTS + (ns >> (power - PART_BITS) & (PARTS - 1));
}

/* The longest time that a bucket holds. */
static inline uint64_t bucket_end(unsigned bucket)
{
    if (bucket < PARTS) return bucket;
    unsigned shift = bucket / PARTS - 1;
    return ((uint64_t) (PARTS + bucket % PARTS + 1) << shift) - 1;
}

static inline void histogram_add(struct histogram *h, uint64_t ns)
{
    h->count++;
    h->sum += ns;
    if (ns > h->most) h->most = ns;
    h->buckets[bucket_of(ns)]++;
}

/* Adds what another one has seen. */
static inline void histogram_merge(struct histogram *h, const struct histogram *other)
{
    h->count += other->count;
    h->sum += other->sum;
    if (other->most > h->most) h->most = other->most;
    for (unsigned i = 0; i < BUCKETS; i++) h->buckets[i] += other->buckets[i];
}

/* The shortest time that at least this part (0 to 1) of all took no longer than, to the bucket's end; 0 of none. */
static inline uint64_t histogram_part(const struct histogram *h, double part)
{
    uint64_t seen = 0;
    for (unsigned i = 0; i < BUCKETS; i++) {
        seen += h->buckets[i];
        if (seen && seen >= part * h->count) return bucket_end(i) < h->most ? bucket_end(i) : h->most;
    }
    return h->most;
}

/* An object of JSON, in microseconds; `null` if nothing was seen. */
static inline void histogram_print(const struct histogram *h)
{
    if (!h->count) { printf("null"); return; }
    printf("{\"p50\": %.2f, \"p90\": %.2f, \"p99\": %.2f, \"p99.9\": %.2f, \"max\": %.2f, \"mean\": %.2f}",
           histogram_part(h, .5) / 1e3, histogram_part(h, .9) / 1e3, histogram_part(h, .99) / 1e3,
           histogram_part(h, .999) / 1e3, h->most / 1e3, (double) h->sum / h->count / 1e3);
}
#endif
