/* What the programs of the measurements have in common: their clock, and how they end when something fails. */
#ifndef CLOCK_H
#define CLOCK_H
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

/* Ends the program, naming what failed. */
static inline void fail(const char *what)
{
    perror(what);
    exit(1);
}

/* Seconds, from some time in the past. */
static inline double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec / 1e9;
}
#endif
