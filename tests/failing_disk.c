/* LD_PRELOAD: below one folder every file call fails from the n-th on, as on a disk that is dying. */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

static char folder[4096];
static int first, number, calls;

/* From the call `at` on, calls below `path` fail with `error`; 0 for never. */
void disk_fail(const char *path, int at, int error) {
    strncpy(folder, path, sizeof folder - 1);
    first = at;
    number = error;
    calls = 0;
}

int disk_calls(void) { return calls; }

static int fails(const char *path) {
    if (!*folder || !path || strncmp(path, folder, strlen(folder))) return 0;
    calls++;
    if (!first || calls < first) return 0;
    errno = number;
    return 1;
}

/* What changes nothing works on a disk that has become read-only. */
#define LOOK(failed) ((failed) && number != EROFS)
#define OPENING(failed) (flags & (O_WRONLY | O_RDWR) ? (failed) : LOOK(failed))

static int fails_fd(int fd) {
    char link[64], path[4096];
    int saved = errno;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t size = readlink(link, path, sizeof path - 1);
    errno = saved;
    if (size < 0) return 0;
    path[size] = 0;
    return fails(path);
}

static int fails_at(int fd, const char *path) {
    return path && path[0] != '/' && fd != AT_FDCWD ? fails_fd(fd) : fails(path);
}

#define WRAP(type, name, parameters, arguments, failed)                       \
    type name parameters {                                                    \
        static type(*real) parameters;                                        \
        if (!real) real = (type(*) parameters)dlsym(RTLD_NEXT, #name);        \
        return (failed) ? (type)-1 : real arguments;                          \
    }

#define OPEN(name, parameters, arguments, failed)                             \
    int name parameters {                                                     \
        static int(*real)(parameters_of_##name, ...);                         \
        if (!real) real = dlsym(RTLD_NEXT, #name);                            \
        va_list rest;                                                         \
        va_start(rest, flags);                                                \
        mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(rest, mode_t) : 0; \
        va_end(rest);                                                         \
        return (failed) ? -1 : real arguments;                                \
    }
#define parameters_of_open const char *, int
#define parameters_of_open64 const char *, int
#define parameters_of_openat int, const char *, int
#define parameters_of_openat64 int, const char *, int

OPEN(open, (const char *path, int flags, ...), (path, flags, mode), OPENING(fails(path)))
OPEN(open64, (const char *path, int flags, ...), (path, flags, mode), OPENING(fails(path)))
OPEN(openat, (int fd, const char *path, int flags, ...), (fd, path, flags, mode), OPENING(fails_at(fd, path)))
OPEN(openat64, (int fd, const char *path, int flags, ...), (fd, path, flags, mode), OPENING(fails_at(fd, path)))

WRAP(ssize_t, write, (int fd, const void *data, size_t size), (fd, data, size), fails_fd(fd))
WRAP(ssize_t, writev, (int fd, const struct iovec *data, int count), (fd, data, count), fails_fd(fd))
WRAP(ssize_t, pwrite, (int fd, const void *data, size_t size, off_t at), (fd, data, size, at), fails_fd(fd))
WRAP(ssize_t, pwrite64, (int fd, const void *data, size_t size, off64_t at), (fd, data, size, at), fails_fd(fd))
WRAP(ssize_t, read, (int fd, void *data, size_t size), (fd, data, size), LOOK(fails_fd(fd)))
WRAP(int, fsync, (int fd), (fd), fails_fd(fd))
WRAP(int, ftruncate, (int fd, off_t size), (fd, size), fails_fd(fd))
WRAP(int, ftruncate64, (int fd, off64_t size), (fd, size), fails_fd(fd))
WRAP(int, fstat, (int fd, struct stat *found), (fd, found), LOOK(fails_fd(fd)))
WRAP(int, stat, (const char *path, struct stat *found), (path, found), LOOK(fails(path)))
WRAP(int, lstat, (const char *path, struct stat *found), (path, found), LOOK(fails(path)))
WRAP(int, fstat64, (int fd, struct stat64 *found), (fd, found), LOOK(fails_fd(fd)))
WRAP(int, stat64, (const char *path, struct stat64 *found), (path, found), LOOK(fails(path)))
WRAP(int, lstat64, (const char *path, struct stat64 *found), (path, found), LOOK(fails(path)))
WRAP(int, link, (const char *old, const char *new), (old, new), fails(new))
WRAP(int, linkat, (int fd, const char *old, int fd2, const char *new, int flags), (fd, old, fd2, new, flags), fails_at(fd2, new))
WRAP(int, rename, (const char *old, const char *new), (old, new), fails(new))
WRAP(int, renameat2, (int fd, const char *old, int fd2, const char *new, unsigned flags), (fd, old, fd2, new, flags), fails_at(fd2, new))
WRAP(int, unlink, (const char *path), (path), fails(path))
WRAP(int, unlinkat, (int fd, const char *path, int flags), (fd, path, flags), fails_at(fd, path))
WRAP(int, rmdir, (const char *path), (path), fails(path))
WRAP(int, mkdir, (const char *path, mode_t mode), (path, mode), fails(path))

DIR *opendir(const char *path) {
    static DIR *(*real)(const char *);
    if (!real) real = dlsym(RTLD_NEXT, "opendir");
    return LOOK(fails(path)) ? NULL : real(path);
}
