/* A disk that cannot sync: loaded before the C library (LD_PRELOAD), fsync and fdatasync of this process fail with EIO
 * while the file named by FAILING_SYNC is there, and each that was asked for meanwhile adds a byte to it. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

static int fails(void) {
    const char *path = getenv("FAILING_SYNC");
    int file = path ? open(path, O_WRONLY | O_APPEND | O_CLOEXEC) : -1;
    if (file < 0) return 0;
    if (write(file, "!", 1) < 0) abort();
    close(file);
    errno = EIO;
    return 1;
}

int fsync(int file) {
    int (*real)(int) = (int (*)(int))dlsym(RTLD_NEXT, "fsync");
    return fails() ? -1 : real(file);
}

int fdatasync(int file) {
    int (*real)(int) = (int (*)(int))dlsym(RTLD_NEXT, "fdatasync");
    return fails() ? -1 : real(file);
}
