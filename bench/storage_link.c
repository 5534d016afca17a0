/* A node's way to shared storage: a folder, seen through a link of so many bytes a second each way.
 *
 *     storage_link FOLDER BYTES_A_SECOND COUNTS -f MOUNTPOINT
 *
 * Every node has a mount of its own, so each has the whole rate, and what one has written is there for the others at
 * once, as with a parallel file system. With STORAGE_LINK_FORGETS in the environment a file that is opened is read again, as with
 * most file systems in user space. COUNTS holds two 64-bit numbers: bytes read and bytes written so far. Built against libfuse 3.
 */
#define _GNU_SOURCE
#define FUSE_USE_VERSION 31
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <fuse.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

static const char *folder;
static double rate;
static volatile unsigned long long *counts;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static double idle_from[2];

#define PATH(name, from) char name[PATH_MAX]; snprintf(name, sizeof name, "%s%s", folder, from)
#define RESULT(call) ((call) < 0 ? -errno : 0)

/* Wait for the link: what came before goes first. */
static void carry(int way, size_t n) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    double now = t.tv_sec + t.tv_nsec * 1e-9;
    pthread_mutex_lock(&lock);
    counts[way] += n;
    double end = idle_from[way] = (idle_from[way] > now ? idle_from[way] : now) + n / rate;
    pthread_mutex_unlock(&lock);
    t.tv_sec = (time_t)end;
    t.tv_nsec = (long)((end - (double)t.tv_sec) * 1e9);
    clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL);
}

static void *begin(struct fuse_conn_info *connection, struct fuse_config *config) {
    (void)connection;
    config->use_ino = 1; /* the same file has the same number on all nodes */
    /* What a node has written itself it need not fetch; what others add makes it look anew. */
    config->kernel_cache = !getenv("STORAGE_LINK_FORGETS");
    config->entry_timeout = config->attr_timeout = config->negative_timeout = 0;
    return NULL;
}

static int do_getattr(const char *path, struct stat *about, struct fuse_file_info *file) {
    if (file) return RESULT(fstat((int)file->fh, about));
    PATH(real, path);
    return RESULT(lstat(real, about));
}
static int do_readlink(const char *path, char *target, size_t size) {
    PATH(real, path);
    ssize_t n = readlink(real, target, size - 1);
    if (n < 0) return -errno;
    target[n] = 0;
    return 0;
}
static int do_mkdir(const char *path, mode_t mode) { PATH(real, path); return RESULT(mkdir(real, mode)); }
static int do_unlink(const char *path) { PATH(real, path); return RESULT(unlink(real)); }
static int do_rmdir(const char *path) { PATH(real, path); return RESULT(rmdir(real)); }
static int do_symlink(const char *target, const char *path) { PATH(real, path); return RESULT(symlink(target, real)); }
static int do_rename(const char *from, const char *to, unsigned flags) {
    PATH(a, from);
    PATH(b, to);
    return RESULT(renameat2(AT_FDCWD, a, AT_FDCWD, b, flags));
}
static int do_link(const char *from, const char *to) { PATH(a, from); PATH(b, to); return RESULT(link(a, b)); }
static int do_chmod(const char *path, mode_t mode, struct fuse_file_info *file) {
    (void)file;
    PATH(real, path);
    return RESULT(chmod(real, mode));
}
static int do_chown(const char *path, uid_t user, gid_t group, struct fuse_file_info *file) {
    (void)file;
    PATH(real, path);
    return RESULT(lchown(real, user, group));
}
static int do_truncate(const char *path, off_t size, struct fuse_file_info *file) {
    if (file) return RESULT(ftruncate((int)file->fh, size));
    PATH(real, path);
    return RESULT(truncate(real, size));
}
static int do_utimens(const char *path, const struct timespec times[2], struct fuse_file_info *file) {
    (void)file;
    PATH(real, path);
    return RESULT(utimensat(AT_FDCWD, real, times, AT_SYMLINK_NOFOLLOW));
}
static int do_create(const char *path, mode_t mode, struct fuse_file_info *file) {
    PATH(real, path);
    int opened = open(real, (file->flags & ~O_APPEND) | O_CREAT | O_CLOEXEC, mode);
    if (opened < 0) return -errno;
    file->fh = (uint64_t)opened;
    return 0;
}
static int do_open(const char *path, struct fuse_file_info *file) {
    PATH(real, path);
    int opened = open(real, (file->flags & ~O_APPEND) | O_CLOEXEC); /* the kernel gives the place of each write */
    if (opened < 0) return -errno;
    file->fh = (uint64_t)opened;
    return 0;
}
static int do_read(const char *path, char *buffer, size_t size, off_t at, struct fuse_file_info *file) {
    (void)path;
    ssize_t n = pread((int)file->fh, buffer, size, at);
    if (n < 0) return -errno;
    carry(0, (size_t)n);
    return (int)n;
}
static int do_write(const char *path, const char *buffer, size_t size, off_t at, struct fuse_file_info *file) {
    (void)path;
    carry(1, size);
    ssize_t n = pwrite((int)file->fh, buffer, size, at);
    return n < 0 ? -errno : (int)n;
}
static int do_statfs(const char *path, struct statvfs *about) { PATH(real, path); return RESULT(statvfs(real, about)); }
static int do_release(const char *path, struct fuse_file_info *file) { (void)path; return RESULT(close((int)file->fh)); }
static int do_fsync(const char *path, int data, struct fuse_file_info *file) {
    (void)path;
    return RESULT(data ? fdatasync((int)file->fh) : fsync((int)file->fh));
}
static int do_fsyncdir(const char *path, int data, struct fuse_file_info *file) {
    (void)path, (void)data, (void)file;
    return 0;
}
static int do_readdir(const char *path, void *buffer, fuse_fill_dir_t fill, off_t at, struct fuse_file_info *file,
                      enum fuse_readdir_flags flags) {
    (void)path, (void)at, (void)flags;
    DIR *opened = (DIR *)(uintptr_t)file->fh;
    rewinddir(opened);
    for (struct dirent *entry; (entry = readdir(opened));) {
        struct stat about = {.st_ino = entry->d_ino, .st_mode = (mode_t)entry->d_type << 12};
        if (fill(buffer, entry->d_name, &about, 0, 0)) break;
    }
    return 0;
}
static int do_opendir(const char *path, struct fuse_file_info *file) {
    PATH(real, path);
    DIR *opened = opendir(real);
    file->fh = (uintptr_t)opened;
    return opened ? 0 : -errno;
}
static int do_releasedir(const char *path, struct fuse_file_info *file) {
    (void)path;
    return RESULT(closedir((DIR *)(uintptr_t)file->fh));
}
static int do_access(const char *path, int mode) { PATH(real, path); return RESULT(access(real, mode)); }

static const struct fuse_operations operations = {
    .init = begin, .getattr = do_getattr, .readlink = do_readlink, .mkdir = do_mkdir, .unlink = do_unlink,
    .rmdir = do_rmdir, .symlink = do_symlink, .rename = do_rename, .link = do_link, .chmod = do_chmod,
    .chown = do_chown, .truncate = do_truncate, .utimens = do_utimens, .create = do_create, .open = do_open,
    .read = do_read, .write = do_write, .statfs = do_statfs, .release = do_release, .fsync = do_fsync,
    .fsyncdir = do_fsyncdir, .opendir = do_opendir, .readdir = do_readdir, .releasedir = do_releasedir, .access = do_access,
};

int main(int argc, char **argv) {
    if (argc < 5) return 2;
    folder = argv[1];
    rate = atof(argv[2]);
    int opened = open(argv[3], O_RDWR | O_CREAT, 0600);
    if (opened < 0 || ftruncate(opened, 16)) return perror(argv[3]), 1;
    counts = mmap(NULL, 16, PROT_READ | PROT_WRITE, MAP_SHARED, opened, 0);
    if (counts == MAP_FAILED) return perror("mmap"), 1;
    umask(0);
    argv[3] = argv[0];
    return fuse_main(argc - 3, argv + 3, &operations, NULL);
}
