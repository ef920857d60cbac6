/* Records what a process asks the kernel to do to the files below one directory.
 *
 * Loaded with LD_PRELOAD.  RECORD_ROOT is the directory, RECORD_LOG the file that gets the records (opened O_APPEND:
 * others may write theirs between ours), RECORD_SYNC_US how much longer every sync takes, so that what is told too
 * early is told long before.  It is for the one process: children do not inherit it.
 *
 * Each call is two records, one before it with all that it writes, one after it with its result; the layout is in
 * trace.py.  A write that is handed to a ring of the kernel's (io_uring) is waited for at once.  What goes past these
 * functions (other direct system calls, writes to shared mappings) is not seen; that the
 * records are complete is checked by the reader (trace.py), against the files that the process left.
 */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/io_uring.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

enum { OPEN = 1, CLOSE, WRITE, TRUNCATE, SYNC, RENAME, UNLINK, MKDIR, MAPPED, OTHER };
enum { BEGIN, END };

#define MAGIC 0x9d5fc3a17b2e6841u /* no bytes of a server's: see trace.py */

struct record {
    uint64_t magic;
    uint32_t size; /* of all of it */
    uint8_t kind, phase, zeroes, pad;
    uint32_t call;
    int32_t descriptor;
    int64_t first, second;
} __attribute__((packed));

#define FILES 65536
static unsigned char watched[FILES];
static char root[4096];
static size_t root_size;
static int log_descriptor = -1;
static useconds_t sync_us;
static uint32_t calls;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

#define REAL(result, name, ...)                             \
    static result (*real_##name)(__VA_ARGS__);              \
    if (!real_##name) real_##name = dlsym(RTLD_NEXT, #name)

static void in_child(void) { log_descriptor = -1; }

__attribute__((constructor)) static void start(void)
{
    const char *directory = getenv("RECORD_ROOT"), *path = getenv("RECORD_LOG"), *slow = getenv("RECORD_SYNC_US");
    if (!directory || !path) return;
    root_size = strlen(directory);
    if (root_size >= sizeof root) return;
    memcpy(root, directory, root_size);
    sync_us = slow ? (useconds_t)atoi(slow) : 0;
    int opened = (int)syscall(SYS_openat, AT_FDCWD, path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
    log_descriptor = (int)syscall(SYS_fcntl, opened, F_DUPFD_CLOEXEC, 500);
    syscall(SYS_close, opened);
    pthread_atfork(NULL, NULL, in_child);
    unsetenv("LD_PRELOAD");
    unsetenv("RECORD_ROOT");
    unsetenv("RECORD_LOG");
}

static int inside(const char *path)
{
    return log_descriptor >= 0 && path && !strncmp(path, root, root_size) && (path[root_size] == '/' || !path[root_size]);
}

/* The path of a name that is looked up from a directory's descriptor; `whole` has room for it. */
static const char *from(int directory, const char *path, char whole[2 * 4096])
{
    char link[64];
    if (log_descriptor < 0 || !path || *path == '/' || directory == AT_FDCWD) return path;
    snprintf(link, sizeof link, "/proc/self/fd/%d", directory);
    ssize_t size = readlink(link, whole, 4095);
    if (size < 0) return path;
    if (strcmp(path, ".")) snprintf(whole + size, 4096, "/%s", path);
    else whole[size] = 0;
    return whole;
}

static int watching(int descriptor)
{
    return log_descriptor >= 0 && descriptor >= 0 && descriptor < FILES && watched[descriptor];
}

static uint32_t note(int kind, int phase, uint32_t call, int descriptor, int64_t first, int64_t second, int zeroes,
                     const struct iovec *parts, int count)
{
    int kept = errno;
    struct record head = {MAGIC, sizeof head, kind, phase, zeroes, 0, call, descriptor, first, second};
    struct iovec all[64] = {{&head, sizeof head}};
    if (count > 63) abort();
    for (int each = 0; each < count; each++) {
        all[each + 1] = parts[each];
        head.size += parts[each].iov_len;
    }
    pthread_mutex_lock(&lock);
    if (phase == BEGIN) head.call = ++calls;
    if (syscall(SYS_writev, log_descriptor, all, count + 1) != head.size) abort();
    pthread_mutex_unlock(&lock);
    errno = kept;
    return head.call;
}

static uint32_t note_names(int kind, int64_t first, const char *one, const char *two)
{
    struct iovec parts[2] = {{(void *)one, strlen(one) + 1}, {(void *)two, two ? strlen(two) + 1 : 0}};
    return note(kind, BEGIN, 0, -1, first, 0, 0, parts, two ? 2 : 1);
}

static void done(int kind, uint32_t call, int64_t result)
{
    note(kind, END, call, -1, result, result < 0 ? errno : 0, 0, NULL, 0);
}

static int all_zero(const struct iovec *parts, int count)
{
    for (int each = 0; each < count; each++) {
        const char *bytes = parts[each].iov_base;
        size_t size = parts[each].iov_len;
        if (size && (bytes[0] || memcmp(bytes, bytes + 1, size - 1))) return 0;
    }
    return 1;
}

static uint32_t note_write(int descriptor, const struct iovec *parts, int count, off_t position)
{
    int64_t size = 0;
    int zeroes = all_zero(parts, count);
    for (int each = 0; each < count; each++) size += parts[each].iov_len;
    return note(WRITE, BEGIN, 0, descriptor, position, size, zeroes, parts, zeroes ? 0 : count);
}

/* -- names */

static int note_opened(uint32_t call, int descriptor)
{
    if (descriptor >= FILES) abort();
    if (descriptor >= 0) watched[descriptor] = 1;
    done(OPEN, call, descriptor);
    return descriptor;
}

#define OPENED(seen, name, ...)                                              \
    mode_t mode = 0;                                                         \
    if (flags & (O_CREAT | __O_TMPFILE)) {                                   \
        va_list rest;                                                        \
        va_start(rest, flags);                                               \
        mode = va_arg(rest, mode_t);                                         \
        va_end(rest);                                                        \
    }                                                                        \
    if (!inside(seen)) return real_##name(__VA_ARGS__, mode);                \
    uint32_t call = note_names(OPEN, flags, seen, NULL);                     \
    return note_opened(call, real_##name(__VA_ARGS__, mode))

int open(const char *path, int flags, ...)
{
    REAL(int, open, const char *, int, ...);
    OPENED(path, open, path, flags);
}

int open64(const char *path, int flags, ...)
{
    REAL(int, open64, const char *, int, ...);
    OPENED(path, open64, path, flags);
}

int openat(int directory, const char *path, int flags, ...)
{
    REAL(int, openat, int, const char *, int, ...);
    char whole[2 * 4096];
    const char *seen = from(directory, path, whole);
    OPENED(seen, openat, directory, path, flags);
}

int openat64(int directory, const char *path, int flags, ...)
{
    REAL(int, openat64, int, const char *, int, ...);
    char whole[2 * 4096];
    const char *seen = from(directory, path, whole);
    OPENED(seen, openat64, directory, path, flags);
}

int close(int descriptor)
{
    REAL(int, close, int);
    if (!watching(descriptor)) return real_close(descriptor);
    watched[descriptor] = 0;
    uint32_t call = note(CLOSE, BEGIN, 0, descriptor, 0, 0, 0, NULL, 0);
    int result = real_close(descriptor);
    done(CLOSE, call, result);
    return result;
}

int rename(const char *old, const char *new)
{
    REAL(int, rename, const char *, const char *);
    if (!inside(old) && !inside(new)) return real_rename(old, new);
    uint32_t call = note_names(RENAME, 0, old, new);
    int result = real_rename(old, new);
    done(RENAME, call, result);
    return result;
}

int renameat(int old_directory, const char *old, int new_directory, const char *new)
{
    REAL(int, renameat, int, const char *, int, const char *);
    char whole_old[2 * 4096], whole_new[2 * 4096];
    const char *seen_old = from(old_directory, old, whole_old), *seen_new = from(new_directory, new, whole_new);
    if (!inside(seen_old) && !inside(seen_new)) return real_renameat(old_directory, old, new_directory, new);
    uint32_t call = note_names(RENAME, 0, seen_old, seen_new);
    int result = real_renameat(old_directory, old, new_directory, new);
    done(RENAME, call, result);
    return result;
}

int unlink(const char *path)
{
    REAL(int, unlink, const char *);
    if (!inside(path)) return real_unlink(path);
    uint32_t call = note_names(UNLINK, 0, path, NULL);
    int result = real_unlink(path);
    done(UNLINK, call, result);
    return result;
}

int unlinkat(int directory, const char *path, int flags)
{
    REAL(int, unlinkat, int, const char *, int);
    char whole[2 * 4096];
    const char *seen = from(directory, path, whole);
    if (!inside(seen)) return real_unlinkat(directory, path, flags);
    uint32_t call = note_names(UNLINK, flags & AT_REMOVEDIR ? 1 : 0, seen, NULL);
    int result = real_unlinkat(directory, path, flags);
    done(UNLINK, call, result);
    return result;
}

int rmdir(const char *path)
{
    REAL(int, rmdir, const char *);
    if (!inside(path)) return real_rmdir(path);
    uint32_t call = note_names(UNLINK, 1, path, NULL);
    int result = real_rmdir(path);
    done(UNLINK, call, result);
    return result;
}

int mkdir(const char *path, mode_t mode)
{
    REAL(int, mkdir, const char *, mode_t);
    if (!inside(path)) return real_mkdir(path, mode);
    uint32_t call = note_names(MKDIR, 0, path, NULL);
    int result = real_mkdir(path, mode);
    done(MKDIR, call, result);
    return result;
}

int mkdirat(int directory, const char *path, mode_t mode)
{
    REAL(int, mkdirat, int, const char *, mode_t);
    char whole[2 * 4096];
    const char *seen = from(directory, path, whole);
    if (!inside(seen)) return real_mkdirat(directory, path, mode);
    uint32_t call = note_names(MKDIR, 0, seen, NULL);
    int result = real_mkdirat(directory, path, mode);
    done(MKDIR, call, result);
    return result;
}

int link(const char *old, const char *new)
{
    REAL(int, link, const char *, const char *);
    if (inside(old) || inside(new)) note_names(OTHER, 0, "link", new);
    return real_link(old, new);
}

/* -- contents */

#define WRITTEN(parts, count, position, call_real)                              \
    uint32_t call = note_write(descriptor, parts, count, position);             \
    ssize_t result = call_real;                                                 \
    if (sync_us && (fcntl(descriptor, F_GETFL) & O_DSYNC)) usleep(sync_us);     \
    done(WRITE, call, result);                                                  \
    return result

static off_t here(int descriptor)
{
    return lseek(descriptor, 0, fcntl(descriptor, F_GETFL) & O_APPEND ? SEEK_END : SEEK_CUR);
}

ssize_t write(int descriptor, const void *data, size_t size)
{
    REAL(ssize_t, write, int, const void *, size_t);
    if (!watching(descriptor)) return real_write(descriptor, data, size);
    struct iovec part = {(void *)data, size};
    WRITTEN(&part, 1, here(descriptor), real_write(descriptor, data, size));
}

ssize_t writev(int descriptor, const struct iovec *parts, int count)
{
    REAL(ssize_t, writev, int, const struct iovec *, int);
    if (!watching(descriptor)) return real_writev(descriptor, parts, count);
    WRITTEN(parts, count, here(descriptor), real_writev(descriptor, parts, count));
}

ssize_t pwrite(int descriptor, const void *data, size_t size, off_t position)
{
    REAL(ssize_t, pwrite, int, const void *, size_t, off_t);
    if (!watching(descriptor)) return real_pwrite(descriptor, data, size, position);
    struct iovec part = {(void *)data, size};
    WRITTEN(&part, 1, position, real_pwrite(descriptor, data, size, position));
}

ssize_t pwrite64(int descriptor, const void *data, size_t size, off64_t position)
{
    REAL(ssize_t, pwrite64, int, const void *, size_t, off64_t);
    if (!watching(descriptor)) return real_pwrite64(descriptor, data, size, position);
    struct iovec part = {(void *)data, size};
    WRITTEN(&part, 1, position, real_pwrite64(descriptor, data, size, position));
}

ssize_t pwritev(int descriptor, const struct iovec *parts, int count, off_t position)
{
    REAL(ssize_t, pwritev, int, const struct iovec *, int, off_t);
    if (!watching(descriptor)) return real_pwritev(descriptor, parts, count, position);
    WRITTEN(parts, count, position, real_pwritev(descriptor, parts, count, position));
}

ssize_t pwritev64(int descriptor, const struct iovec *parts, int count, off64_t position)
{
    REAL(ssize_t, pwritev64, int, const struct iovec *, int, off64_t);
    if (!watching(descriptor)) return real_pwritev64(descriptor, parts, count, position);
    WRITTEN(parts, count, position, real_pwritev64(descriptor, parts, count, position));
}

#define TRUNCATED(call_real)                                                    \
    uint32_t call = note(TRUNCATE, BEGIN, 0, descriptor, size, 0, 0, NULL, 0);  \
    int result = call_real;                                                     \
    done(TRUNCATE, call, result);                                               \
    return result

int ftruncate(int descriptor, off_t size)
{
    REAL(int, ftruncate, int, off_t);
    if (!watching(descriptor)) return real_ftruncate(descriptor, size);
    TRUNCATED(real_ftruncate(descriptor, size));
}

int ftruncate64(int descriptor, off64_t size)
{
    REAL(int, ftruncate64, int, off64_t);
    if (!watching(descriptor)) return real_ftruncate64(descriptor, size);
    TRUNCATED(real_ftruncate64(descriptor, size));
}

int fallocate(int descriptor, int mode, off_t position, off_t size)
{
    REAL(int, fallocate, int, int, off_t, off_t);
    if (watching(descriptor)) note_names(OTHER, 0, "fallocate", NULL);
    return real_fallocate(descriptor, mode, position, size);
}

int posix_fallocate(int descriptor, off_t position, off_t size)
{
    REAL(int, posix_fallocate, int, off_t, off_t);
    if (watching(descriptor)) note_names(OTHER, 0, "posix_fallocate", NULL);
    return real_posix_fallocate(descriptor, position, size);
}

static int ring = -1; /* the one of kernel_writes.py, which submits one write at a time from the first place */
static struct io_uring_params ring_params;
static char *ring_memory;
static struct io_uring_sqe *ring_submission;

static void *note_mapped(void *mapped, int protection, int flags, int descriptor, off_t position)
{
    struct stat one, other;
    if (ring >= 0 && !fstat(descriptor, &one) && !fstat(ring, &other) && one.st_ino == other.st_ino && flags & MAP_SHARED) {
        if (position == (off_t)IORING_OFF_SQES) ring_submission = mapped;
        else ring_memory = mapped;
    }
    if (watching(descriptor) && protection & PROT_WRITE && flags & MAP_SHARED)
        note(MAPPED, BEGIN, 0, descriptor, 0, 0, 0, NULL, 0);
    return mapped;
}

void *mmap(void *address, size_t size, int protection, int flags, int descriptor, off_t position)
{
    REAL(void *, mmap, void *, size_t, int, int, int, off_t);
    return note_mapped(real_mmap(address, size, protection, flags, descriptor, position), protection, flags, descriptor,
                       position);
}

void *mmap64(void *address, size_t size, int protection, int flags, int descriptor, off64_t position)
{
    REAL(void *, mmap64, void *, size_t, int, int, int, off64_t);
    return note_mapped(real_mmap64(address, size, protection, flags, descriptor, position), protection, flags,
                       descriptor, position);
}

#define SYNCED(name)                                                            \
    REAL(int, name, int);                                                       \
    if (!watching(descriptor)) return real_##name(descriptor);                  \
    uint32_t call = note(SYNC, BEGIN, 0, descriptor, 0, 0, 0, NULL, 0);         \
    int result = real_##name(descriptor);                                       \
    if (sync_us) usleep(sync_us);                                               \
    done(SYNC, call, result);                                                   \
    return result

int fsync(int descriptor) { SYNCED(fsync); }
int fdatasync(int descriptor) { SYNCED(fdatasync); }


/* -- the kernel's rings, which have no functions in libc */

static long handed_over(long (*real_syscall)(long, ...), long *args)
{
    struct io_uring_sqe *one = ring_submission;
    if (one->opcode != IORING_OP_WRITE || !ring_memory) abort();
    struct iovec part = {(void *)one->addr, one->len};
    int descriptor = one->fd;
    uint32_t call = note_write(descriptor, &part, 1, (off_t)one->off);
    long count = real_syscall(SYS_io_uring_enter, args[0], 1, 1, IORING_ENTER_GETEVENTS, NULL, 0);
    if (count != 1) abort();
    if (sync_us && (fcntl(descriptor, F_GETFL) & O_DSYNC)) usleep(sync_us);
    unsigned last = *(volatile unsigned *)(ring_memory + ring_params.cq_off.tail) - 1;
    unsigned mask = *(unsigned *)(ring_memory + ring_params.cq_off.ring_mask);
    struct io_uring_cqe *cqe = (struct io_uring_cqe *)(ring_memory + ring_params.cq_off.cqes) + (last & mask);
    errno = cqe->res < 0 ? -cqe->res : 0;
    done(WRITE, call, cqe->res < 0 ? -1 : cqe->res);
    return count;
}

long syscall(long number, ...)
{
    REAL(long, syscall, long, ...);
    va_list rest;
    va_start(rest, number);
    long args[6];
    for (int each = 0; each < 6; each++) args[each] = va_arg(rest, long);
    va_end(rest);
    if (log_descriptor >= 0 && number == SYS_io_uring_enter && args[0] == ring && args[1] == 1 && ring_submission &&
        watching(ring_submission->fd))
        return handed_over(real_syscall, args);
    long result = real_syscall(number, args[0], args[1], args[2], args[3], args[4], args[5]);
    if (log_descriptor >= 0 && number == SYS_io_uring_setup && result >= 0) {
        ring = (int)result;
        ring_params = *(struct io_uring_params *)args[1];
    }
    return result;
}
