/*
 * A disk that forgets. Preloaded into a process (LD_PRELOAD), it keeps beside a
 * watched folder what a power cut would leave of it: the contents of a file as of
 * its last fsync, the names in a folder as of that folder's last fsync. Whoever
 * kills the process can then put that state together (power/mod.rs does).
 *
 * It also records the order of writes, fsyncs and acknowledgements, kills the
 * process at a named point, and lets calls fail.
 *
 * It sees calls that go through libc; Rust's standard library makes all of its
 * calls so. Renames and deletions are not watched at all: names are read from
 * the folder when it is synced, so it does not matter who changed them, or how.
 *
 *   FORGET_ROOT    the watched folder
 *   FORGET_SHADOW  an empty folder on the same file system: files/KEY has the
 *                  durable contents of a file, names/KEY the durable names of a
 *                  folder, one line each: "f KEY NAME" or "d KEY NAME"
 *   FORGET_ORDERED 1: every fsync makes all names durable, as file systems with
 *                  an ordered journal do; else only the fsync of a folder does
 *   FORGET_LOG     where to record: "w PATH", "s PATH" (synced), "a TEXT" (a
 *                  write to a pipe: an acknowledgement)
 *   FORGET_CRASH   EVENT:PART:COUNT, the process ends at the COUNTth EVENT
 *                  (write, sync: before it; synced: after it) on a path with PART
 *   FORGET_FAIL    EVENT:PART:COUNT:ERRNO, from the COUNTth such event on it fails
 *   FORGET_ARM     a file; crashes and failures count only once it exists
 *   FORGET_FIRED   a file that is made when one of them happens
 *
 * KEY is a file's inode and time of birth: inodes are used again, pairs are not.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char root[PATH_MAX], shadow[PATH_MAX];
static int ordered, log_fd = -1;

static ssize_t (*real_write)(int, const void *, size_t);
static ssize_t (*real_writev)(int, const struct iovec *, int);
static ssize_t (*real_pwrite)(int, const void *, size_t, off_t);
static int (*real_ftruncate)(int, off_t);
static int (*real_fsync)(int);
static int (*real_fdatasync)(int);
static ssize_t (*real_copy_file_range)(int, off64_t *, int, off64_t *, size_t, unsigned);

struct rule { char event[16], part[64]; long count; int error; };
static struct rule crash_rule, fail_rule;

/* The stretch of a file that was written since its last fsync. */
struct dirty { char key[64]; off_t from, until; int truncated; };
static struct dirty *dirty_files;
static size_t dirty_count;

static void die(const char *what)
{
    fprintf(stderr, "forget: %s: %s\n", what, strerror(errno));
    _exit(97);
}

static int key_of(int fd, const char *path, char *key, mode_t *mode, off_t *size)
{
    struct statx st;
    int flags = path ? AT_SYMLINK_NOFOLLOW : AT_EMPTY_PATH;
    if (statx(path ? AT_FDCWD : fd, path ? path : "", flags, STATX_BASIC_STATS | STATX_BTIME, &st))
        return -1;
    snprintf(key, 64, "%llu-%lld.%09u", (unsigned long long)st.stx_ino,
             (long long)st.stx_btime.tv_sec, st.stx_btime.tv_nsec);
    *mode = st.stx_mode;
    if (size)
        *size = (off_t)st.stx_size;
    return 0;
}

/* The path of a descriptor in the watched folder; 0 where it is elsewhere. */
static int watched(int fd, char *path)
{
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, PATH_MAX - 1);
    if (length <= 0)
        return 0;
    path[length] = 0;
    size_t n = strlen(root);
    return n && !strncmp(path, root, n) && (path[n] == 0 || path[n] == '/');
}

static void image_path(char *out, const char *kind, const char *key)
{
    if (snprintf(out, PATH_MAX, "%s/%s/%s", shadow, kind, key) >= PATH_MAX)
        die("a path is too long");
}

static void record(const char *format, ...)
{
    if (log_fd < 0)
        return;
    char line[PATH_MAX + 64];
    va_list list;
    va_start(list, format);
    int length = vsnprintf(line, sizeof line, format, list);
    va_end(list);
    if (length > (int)sizeof line - 1)
        length = sizeof line - 1;
    real_write(log_fd, line, (size_t)length);
}

static void fired(void)
{
    const char *mark = getenv("FORGET_FIRED");
    if (mark)
        close(open(mark, O_CREAT | O_WRONLY, 0600));
}

static int hits(struct rule *rule, const char *event, const char *path)
{
    if (!rule->count || strcmp(rule->event, event) || !strstr(path, rule->part))
        return 0;
    const char *arm = getenv("FORGET_ARM");
    if (arm && access(arm, F_OK))
        return 0;
    if (rule->count > 1) {
        rule->count--;
        return 0;
    }
    fired();
    return 1;
}

/* Ends the process, or returns the error that the call is to fail with. */
static int happens(const char *event, const char *path)
{
    if (hits(&crash_rule, event, path)) {
        kill(getpid(), SIGKILL);
        for (;;)
            pause();
    }
    return hits(&fail_rule, event, path) ? fail_rule.error : 0;
}

static void copy_range(int from, int to, off_t at, off_t until)
{
    char buffer[1 << 16];
    while (at < until) {
        size_t want = (size_t)(until - at) < sizeof buffer ? (size_t)(until - at) : sizeof buffer;
        ssize_t got = pread(from, buffer, want, at);
        if (got <= 0)
            break;
        /* Zeros that were never written stay holes. */
        int zeros = 1;
        for (ssize_t i = 0; i < got && zeros; i++)
            zeros = !buffer[i];
        off_t end = lseek(to, 0, SEEK_END);
        if (!(zeros && at >= end) && real_pwrite(to, buffer, (size_t)got, at) != got)
            die("cannot write an image");
        at += got;
    }
}

/* A path that names the descriptor's file, whatever its name is now. */
static int open_again(int fd)
{
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    return open(link, O_RDONLY | O_CLOEXEC);
}

/* Before the first change to a file that was there at the start: its image is
 * only a second name of it so far. */
static void keep_original(int fd, const char *key)
{
    char image[PATH_MAX], fresh[PATH_MAX + 8];
    image_path(image, "files", key);
    struct stat there, now;
    if (stat(image, &there) || fstat(fd, &now) || there.st_ino != now.st_ino)
        return;
    snprintf(fresh, sizeof fresh, "%s.new", image);
    int from = open_again(fd);
    int to = open(fresh, O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC, 0600);
    if (from < 0 || to < 0)
        die("cannot keep the original");
    copy_range(from, to, 0, now.st_size);
    if (real_ftruncate(to, now.st_size))
        die("cannot keep the original's length");
    close(from);
    close(to);
    if (rename(fresh, image))
        die("cannot keep the original");
}

static struct dirty *dirty_of(const char *key)
{
    for (size_t i = 0; i < dirty_count; i++)
        if (!strcmp(dirty_files[i].key, key))
            return &dirty_files[i];
    dirty_files = realloc(dirty_files, (dirty_count + 1) * sizeof *dirty_files);
    if (!dirty_files)
        die("no memory");
    struct dirty *entry = &dirty_files[dirty_count++];
    memset(entry, 0, sizeof *entry);
    snprintf(entry->key, sizeof entry->key, "%s", key);
    entry->from = -1;
    return entry;
}

static void wrote(const char *key, off_t from, off_t until)
{
    struct dirty *entry = dirty_of(key);
    if (entry->from < 0 || from < entry->from)
        entry->from = from;
    if (until > entry->until)
        entry->until = until;
}

static void sync_file(int fd, const char *key, off_t size)
{
    char image[PATH_MAX];
    image_path(image, "files", key);
    struct stat there, now;
    int known = !stat(image, &there);
    if (known && !fstat(fd, &now) && there.st_ino == now.st_ino)
        return; /* never changed */
    struct dirty *entry = dirty_of(key);
    int from = open_again(fd);
    int to = open(image, O_CREAT | O_RDWR | O_CLOEXEC, 0600);
    if (from < 0 || to < 0)
        die("cannot write an image");
    if (!known)
        copy_range(from, to, 0, size);
    else if (entry->from >= 0)
        copy_range(from, to, entry->from, entry->until < size ? entry->until : size);
    if (real_ftruncate(to, size))
        die("cannot set an image's length");
    entry->from = -1;
    entry->until = 0;
    close(from);
    close(to);
}

/* When a folder was last changed, and last read. */
struct listed { char key[64]; long long changed, read; };
static struct listed *listed_folders;
static size_t listed_count;

static long long nanos(struct timespec at) { return at.tv_sec * 1000000000LL + at.tv_nsec; }

/* Whether a folder is as it was when it was last read. File systems count time in
 * steps: what changed just before it was read may have changed just after, too. */
static int unchanged(const char *path, const char *key)
{
    const long long step = 50000000;
    struct stat st;
    struct timespec now;
    struct listed *entry = NULL;
    if (stat(path, &st) || clock_gettime(CLOCK_REALTIME, &now))
        return 0;
    for (size_t i = 0; i < listed_count && !entry; i++)
        if (!strcmp(listed_folders[i].key, key))
            entry = &listed_folders[i];
    if (entry && entry->changed == nanos(st.st_mtim) && entry->changed + step < entry->read)
        return 1;
    if (!entry) {
        listed_folders = realloc(listed_folders, (listed_count + 1) * sizeof *entry);
        if (!listed_folders)
            die("no memory");
        entry = &listed_folders[listed_count++];
        snprintf(entry->key, sizeof entry->key, "%s", key);
    }
    entry->changed = nanos(st.st_mtim);
    entry->read = nanos(now);
    return 0;
}

/* The folders below one, as its names were last noted. */
static void sync_names(const char *path, int deep, int start);

static void sync_names_below(const char *path, const char *names)
{
    char line[PATH_MAX], child[PATH_MAX], name[256];
    FILE *in = fopen(names, "re");
    if (!in)
        die("cannot read names");
    while (fgets(line, sizeof line, in))
        if (sscanf(line, "d %*s %255s", name) == 1) {
            if (snprintf(child, sizeof child, "%s/%s", path, name) >= PATH_MAX)
                die("a path is too long");
            if (!access(child, F_OK))
                sync_names(child, 1, 0);
        }
    fclose(in);
}

/* Notes the names in a folder as they are; with `deep`, in all below it too, and
 * at the start a second name for every file. */
static void sync_names(const char *path, int deep, int start)
{
    char key[64], names[PATH_MAX], fresh[PATH_MAX + 8], child[PATH_MAX];
    mode_t mode;
    if (key_of(-1, path, key, &mode, NULL))
        return; /* gone meanwhile */
    if (deep && !start && unchanged(path, key)) {
        image_path(names, "names", key);
        sync_names_below(path, names);
        return;
    }
    DIR *dir = opendir(path);
    if (!dir)
        die("cannot read a folder");
    image_path(names, "names", key);
    snprintf(fresh, sizeof fresh, "%s.new", names);
    FILE *out = fopen(fresh, "we");
    if (!out)
        die("cannot note names");
    for (struct dirent *entry; (entry = readdir(dir));) {
        if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, ".."))
            continue;
        if (snprintf(child, sizeof child, "%s/%s", path, entry->d_name) >= PATH_MAX)
            die("a path is too long");
        if (key_of(-1, child, key, &mode, NULL))
            continue; /* gone meanwhile */
        fprintf(out, "%c %s %s\n", S_ISDIR(mode) ? 'd' : 'f', key, entry->d_name);
        if (S_ISDIR(mode) && deep)
            sync_names(child, deep, start);
        if (!S_ISDIR(mode) && start) {
            char image[PATH_MAX];
            image_path(image, "files", key);
            if (link(child, image) && errno != EEXIST)
                die("cannot note a file");
        }
    }
    closedir(dir);
    if (fclose(out) || rename(fresh, names))
        die("cannot note names");
}

static void synced(int fd, const char *path)
{
    char key[64];
    mode_t mode;
    off_t size;
    if (key_of(fd, NULL, key, &mode, &size))
        return;
    if (S_ISDIR(mode))
        sync_names(path, ordered, 0);
    else if (S_ISREG(mode)) {
        sync_file(fd, key, size);
        if (ordered)
            sync_names(root, 1, 0);
    }
    record("s %s\n", path);
}

static int sync_with(int (*call)(int), int fd)
{
    char path[PATH_MAX];
    if (!shadow[0] || !watched(fd, path))
        return call(fd);
    pthread_mutex_lock(&lock);
    int error = happens("sync", path);
    if (!error) {
        /* The real disk may stay lazy: the image is what counts. */
        synced(fd, path);
        error = happens("synced", path);
    }
    pthread_mutex_unlock(&lock);
    if (error) {
        errno = error;
        return -1;
    }
    return 0;
}

int fsync(int fd) { return sync_with(real_fsync, fd); }
int fdatasync(int fd) { return sync_with(real_fdatasync, fd); }

/* Before a write of `length` bytes. Leaves the lock taken if it returns 1. */
static int before_write(int fd, const void *bytes, size_t length, char *key)
{
    char path[PATH_MAX];
    struct stat st;
    if (!shadow[0] || fd == log_fd || fstat(fd, &st))
        return 0;
    if (S_ISFIFO(st.st_mode) && bytes) {
        pthread_mutex_lock(&lock);
        int shown = length < 60 ? (int)length : 60;
        while (shown && ((const char *)bytes)[shown - 1] == '\n')
            shown--;
        record("a %.*s\n", shown, (const char *)bytes);
        pthread_mutex_unlock(&lock);
        return 0;
    }
    mode_t mode;
    if (!S_ISREG(st.st_mode) || !watched(fd, path) || key_of(fd, NULL, key, &mode, NULL))
        return 0;
    pthread_mutex_lock(&lock);
    int error = happens("write", path);
    if (error) {
        pthread_mutex_unlock(&lock);
        errno = error;
        return -1;
    }
    keep_original(fd, key);
    record("w %s\n", path);
    return 1;
}

ssize_t write(int fd, const void *bytes, size_t length)
{
    char key[64];
    int taken = before_write(fd, bytes, length, key);
    if (taken < 0)
        return -1;
    ssize_t done = real_write(fd, bytes, length);
    if (taken) {
        off_t end = lseek(fd, 0, SEEK_CUR);
        if (done > 0)
            wrote(key, end - done, end);
        pthread_mutex_unlock(&lock);
    }
    return done;
}

ssize_t writev(int fd, const struct iovec *parts, int count)
{
    char key[64];
    int taken = before_write(fd, NULL, 0, key);
    if (taken < 0)
        return -1;
    ssize_t done = real_writev(fd, parts, count);
    if (taken) {
        off_t end = lseek(fd, 0, SEEK_CUR);
        if (done > 0)
            wrote(key, end - done, end);
        pthread_mutex_unlock(&lock);
    }
    return done;
}

ssize_t pwrite64(int fd, const void *bytes, size_t length, off64_t at)
{
    char key[64];
    int taken = before_write(fd, NULL, 0, key);
    if (taken < 0)
        return -1;
    ssize_t done = real_pwrite(fd, bytes, length, at);
    if (taken) {
        if (done > 0)
            wrote(key, at, at + done);
        pthread_mutex_unlock(&lock);
    }
    return done;
}

ssize_t pwrite(int fd, const void *bytes, size_t length, off_t at)
{
    return pwrite64(fd, bytes, length, at);
}

int ftruncate64(int fd, off64_t length)
{
    char key[64];
    int taken = before_write(fd, NULL, 0, key);
    if (taken < 0)
        return -1;
    int done = real_ftruncate(fd, length);
    if (taken)
        pthread_mutex_unlock(&lock);
    return done;
}

int ftruncate(int fd, off_t length) { return ftruncate64(fd, length); }

ssize_t copy_file_range(int in, off64_t *in_at, int out, off64_t *out_at, size_t length,
                        unsigned flags)
{
    char key[64];
    int taken = before_write(out, NULL, 0, key);
    if (taken < 0)
        return -1;
    ssize_t done = real_copy_file_range(in, in_at, out, out_at, length, flags);
    if (taken) {
        off_t end = out_at ? (off_t)*out_at : lseek(out, 0, SEEK_CUR);
        if (done > 0)
            wrote(key, end - done, end);
        pthread_mutex_unlock(&lock);
    }
    return done;
}

/* Opening a file can cut it to nothing. */
static void before_open(const char *path, int flags)
{
    char full[PATH_MAX], key[64];
    mode_t mode;
    if (!shadow[0] || !(flags & O_TRUNC) || !(flags & (O_WRONLY | O_RDWR)))
        return;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return;
    if (watched(fd, full) && !key_of(fd, NULL, key, &mode, NULL) && S_ISREG(mode)) {
        pthread_mutex_lock(&lock);
        keep_original(fd, key);
        pthread_mutex_unlock(&lock);
    }
    close(fd);
}

int open64(const char *path, int flags, ...)
{
    mode_t mode = 0;
    if (flags & (O_CREAT | O_TMPFILE)) {
        va_list list;
        va_start(list, flags);
        mode = va_arg(list, mode_t);
        va_end(list);
    }
    before_open(path, flags);
    return openat(AT_FDCWD, path, flags, mode);
}

static void read_rule(const char *name, struct rule *rule)
{
    const char *text = getenv(name);
    if (!text)
        return;
    char kind[16] = "";
    int parts = sscanf(text, "%15[^:]:%63[^:]:%ld:%15s", rule->event, rule->part, &rule->count, kind);
    if (parts < 3)
        die("a rule is not EVENT:PART:COUNT");
    rule->error = !strcmp(kind, "ENOSPC") ? ENOSPC : EIO;
}

__attribute__((constructor)) static void start(void)
{
    real_write = dlsym(RTLD_NEXT, "write");
    real_writev = dlsym(RTLD_NEXT, "writev");
    real_pwrite = dlsym(RTLD_NEXT, "pwrite64");
    real_ftruncate = dlsym(RTLD_NEXT, "ftruncate64");
    real_fsync = dlsym(RTLD_NEXT, "fsync");
    real_fdatasync = dlsym(RTLD_NEXT, "fdatasync");
    real_copy_file_range = dlsym(RTLD_NEXT, "copy_file_range");
    const char *watch = getenv("FORGET_ROOT"), *images = getenv("FORGET_SHADOW");
    if (!watch || !images)
        return;
    char path[PATH_MAX];
    if (!realpath(watch, root) || !realpath(images, path))
        die("FORGET_ROOT and FORGET_SHADOW must exist");
    snprintf(shadow, sizeof shadow, "%s", path);
    ordered = getenv("FORGET_ORDERED") != NULL;
    const char *log = getenv("FORGET_LOG");
    if (log)
        log_fd = open(log, O_CREAT | O_WRONLY | O_APPEND | O_CLOEXEC, 0600);
    read_rule("FORGET_CRASH", &crash_rule);
    read_rule("FORGET_FAIL", &fail_rule);
    if (snprintf(path, sizeof path, "%s/files", shadow) >= PATH_MAX || (mkdir(path, 0700) && errno != EEXIST))
        die("cannot make the shadow");
    if (snprintf(path, sizeof path, "%s/names", shadow) >= PATH_MAX || (mkdir(path, 0700) && errno != EEXIST))
        die("cannot make the shadow");
    /* What is there at the start is durable. */
    sync_names(root, 1, 1);
}
