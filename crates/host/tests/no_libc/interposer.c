/* Counts the calls of libc's file functions, by name, wherever in the process they come from.
 *
 * Preloaded (LD_PRELOAD), it stands before libc in the search for symbols. A program looks up `wholly_calls` by dlsym
 * and asks it between which two points no call was made. The calls themselves go on to libc.
 *
 * All functions here take integers and pointers only, at most six, and return one: so one forwarder serves all on the
 * calling conventions of x86-64 and aarch64, variadic ones (open, fcntl, ioctl, syscall) included. No header is
 * used that declares one of them.
 */
extern void *dlsym(void *handle, const char *name);
#define NEXT ((void *)-1L) /* RTLD_NEXT */

typedef long word;
typedef word (*function)(word, word, word, word, word, word, word);

#define LOG_SIZE 4096
static unsigned long calls;
static char log_text[LOG_SIZE];
static unsigned long log_len;

static void note(const char *name)
{
    __atomic_add_fetch(&calls, 1, __ATOMIC_RELAXED);
    /* Tests that read the log are single-threaded; a torn log only spoils a message. */
    for (unsigned long i = 0; name[i] && log_len + 2 < LOG_SIZE; i++)
        log_text[log_len++] = name[i];
    if (log_len + 2 < LOG_SIZE)
        log_text[log_len++] = ' ';
}

/* How many calls there were since the last time; their names into `names`. */
unsigned long wholly_calls(char *names, unsigned long size)
{
    unsigned long n = __atomic_exchange_n(&calls, 0, __ATOMIC_RELAXED), i = 0;
    for (; i < log_len && i + 1 < size; i++)
        names[i] = log_text[i];
    if (size)
        names[i] = 0;
    log_len = 0;
    return n;
}

#define WATCH(name)                                                          \
    word name(word a, word b, word c, word d, word e, word f, word g)        \
    {                                                                        \
        static function next;                                                \
        if (!next)                                                           \
            next = (function)dlsym(NEXT, #name);                             \
        note(#name);                                                         \
        return next(a, b, c, d, e, f, g);                                    \
    }

/* Opening and closing. */
WATCH(open) WATCH(open64) WATCH(openat) WATCH(openat64) WATCH(creat) WATCH(creat64) WATCH(close) WATCH(close_range)
WATCH(__open_2) WATCH(__open64_2) WATCH(__openat_2) WATCH(__openat64_2)
WATCH(dup) WATCH(dup2) WATCH(dup3) WATCH(fcntl) WATCH(fcntl64) WATCH(ioctl) WATCH(flock) WATCH(lockf) WATCH(lockf64)
WATCH(memfd_create) WATCH(shm_open) WATCH(shm_unlink) WATCH(name_to_handle_at) WATCH(open_by_handle_at)
/* Reading and writing. */
WATCH(read) WATCH(pread) WATCH(pread64) WATCH(readv) WATCH(preadv) WATCH(preadv64) WATCH(preadv2) WATCH(preadv64v2)
WATCH(__read_chk) WATCH(__pread_chk) WATCH(__pread64_chk)
WATCH(write) WATCH(pwrite) WATCH(pwrite64) WATCH(writev) WATCH(pwritev) WATCH(pwritev64) WATCH(pwritev2)
WATCH(pwritev64v2)
WATCH(lseek) WATCH(lseek64) WATCH(copy_file_range) WATCH(sendfile) WATCH(sendfile64) WATCH(splice) WATCH(tee)
WATCH(posix_fadvise) WATCH(posix_fadvise64) WATCH(readahead)
/* What is known of a file. */
WATCH(stat) WATCH(stat64) WATCH(fstat) WATCH(fstat64) WATCH(lstat) WATCH(lstat64) WATCH(fstatat) WATCH(fstatat64)
WATCH(__xstat) WATCH(__xstat64) WATCH(__fxstat) WATCH(__fxstat64) WATCH(__lxstat) WATCH(__lxstat64)
WATCH(__fxstatat) WATCH(__fxstatat64) WATCH(statx)
WATCH(statfs) WATCH(statfs64) WATCH(fstatfs) WATCH(fstatfs64) WATCH(statvfs) WATCH(statvfs64) WATCH(fstatvfs)
WATCH(fstatvfs64)
WATCH(access) WATCH(faccessat) WATCH(euidaccess) WATCH(eaccess)
/* Size and persistence. */
WATCH(truncate) WATCH(truncate64) WATCH(ftruncate) WATCH(ftruncate64)
WATCH(fallocate) WATCH(fallocate64) WATCH(posix_fallocate) WATCH(posix_fallocate64)
WATCH(fsync) WATCH(fdatasync) WATCH(sync) WATCH(syncfs) WATCH(sync_file_range)
/* Names. */
WATCH(rename) WATCH(renameat) WATCH(renameat2) WATCH(unlink) WATCH(unlinkat) WATCH(remove) WATCH(link) WATCH(linkat)
WATCH(symlink) WATCH(symlinkat) WATCH(readlink) WATCH(readlinkat) WATCH(realpath)
WATCH(mkdir) WATCH(mkdirat) WATCH(rmdir) WATCH(mknod) WATCH(mknodat) WATCH(mkfifo) WATCH(mkfifoat)
WATCH(mkstemp) WATCH(mkstemp64) WATCH(mkdtemp) WATCH(chdir) WATCH(fchdir) WATCH(getcwd)
/* Directories. */
WATCH(opendir) WATCH(fdopendir) WATCH(readdir) WATCH(readdir64) WATCH(closedir) WATCH(dirfd) WATCH(getdents64)
/* Attributes. */
WATCH(chmod) WATCH(fchmod) WATCH(fchmodat) WATCH(chown) WATCH(fchown) WATCH(lchown) WATCH(fchownat) WATCH(umask)
WATCH(utimensat) WATCH(futimens) WATCH(utime) WATCH(utimes)
WATCH(getxattr) WATCH(lgetxattr) WATCH(fgetxattr) WATCH(setxattr) WATCH(lsetxattr) WATCH(fsetxattr)
WATCH(listxattr) WATCH(llistxattr) WATCH(flistxattr) WATCH(removexattr) WATCH(lremovexattr) WATCH(fremovexattr)
/* Streams. */
WATCH(fopen) WATCH(fopen64) WATCH(fdopen) WATCH(freopen) WATCH(fclose) WATCH(fread) WATCH(fwrite) WATCH(fflush)
WATCH(fgets) WATCH(fputs) WATCH(getline)
/* Mappings. */
WATCH(mmap) WATCH(mmap64) WATCH(munmap) WATCH(mremap) WATCH(msync) WATCH(madvise) WATCH(posix_madvise) WATCH(mprotect)

/* Any system call at all, but those that are none of files: std waits for locks and asks for random bytes this way. */
word syscall(word number, word a, word b, word c, word d, word e, word f)
{
#if defined(__x86_64__)
    enum { FUTEX = 202, GETRANDOM = 318, GETTID = 186 };
#else
    enum { FUTEX = 98, GETRANDOM = 278, GETTID = 178 };
#endif
    static function next;
    if (!next)
        next = (function)dlsym(NEXT, "syscall");
    if (number != FUTEX && number != GETRANDOM && number != GETTID)
        note("syscall");
    return next(number, a, b, c, d, e, f);
}
