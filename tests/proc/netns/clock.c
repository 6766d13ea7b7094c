/* A wall clock that can be set for one process: loaded before the C library (LD_PRELOAD), it adds to what
 * CLOCK_REALTIME says the milliseconds that stand in the file named by NETNS_SKEW, eight bytes, changed at any
 * time by whoever has the file. The monotonic clock is left alone, as a real jump leaves it alone. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>

static int (*real)(clockid_t, struct timespec *);
static volatile int64_t *skew_ms;

static __attribute__((constructor)) void begin(void) {
    const char *path = getenv("NETNS_SKEW");
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    real = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    if (file >= 0) {
        void *at = mmap(NULL, sizeof *skew_ms, PROT_READ, MAP_SHARED, file, 0);
        if (at != MAP_FAILED) skew_ms = at;
    }
}

int clock_gettime(clockid_t clock, struct timespec *out) {
    if (!real) begin();
    int code = real(clock, out);
    if (code == 0 && clock == CLOCK_REALTIME && skew_ms) {
        int64_t ns = out->tv_nsec + *skew_ms % 1000 * 1000000;
        out->tv_sec += *skew_ms / 1000 + (ns >= 1000000000) - (ns < 0);
        out->tv_nsec = (ns + 1000000000) % 1000000000;
    }
    return code;
}
