/* A disk that cannot sync: loaded before the C library (LD_PRELOAD), fsync and fdatasync of this process fail with EIO
 * while the file named by FAILING_SYNC is there, and each that was asked for meanwhile adds a byte to it.
 *
 * And one whose power goes: each sync that works adds a line to the file named by SYNCED, the size of what was synced
 * and its path. A test cuts files to those sizes. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
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

static long size_of(int file) {
    struct stat found;
    return fstat(file, &found) ? 0 : (long)found.st_size;
}

/* What was written before the sync began is safe after it; what came meanwhile may be. */
static int note(int result, int file, long size) {
    const char *place = getenv("SYNCED");
    char link[64], path[4096], line[4200];
    if (!place || result) return result;
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length < 0) return result;
    path[length] = 0;
    int log = open(place, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
    int count = snprintf(line, sizeof line, "%ld %s\n", size, path);
    if (log < 0 || write(log, line, count) < 0) abort();
    close(log);
    return result;
}

int fsync(int file) {
    int (*real)(int) = (int (*)(int))dlsym(RTLD_NEXT, "fsync");
    long size = size_of(file);
    return fails() ? -1 : note(real(file), file, size);
}

int fdatasync(int file) {
    int (*real)(int) = (int (*)(int))dlsym(RTLD_NEXT, "fdatasync");
    long size = size_of(file);
    return fails() ? -1 : note(real(file), file, size);
}
