/* Makes a directory hang as a mount of a server that went away does. For LD_PRELOAD. As long as the file is there that
 * HANGING_WHILE names, who lists, looks at or opens what lies below HANGING_BELOW waits; and who reads of it, as long
 * as that of HANGING_READS_WHILE is there. Who waits is told in the file HANGING_SEEN. Reads that would not wait are not possible, as on many mounts. */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

__attribute__((constructor)) static void refuse_reads_that_would_not_wait(void) {
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_preadv2, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EOPNOTSUPP),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog filter = {sizeof code / sizeof *code, code};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter)) abort();
}

static void pass(const char *path, const char *flag) {
    const char *below = getenv("HANGING_BELOW");
    if (!path || !below || !flag || strncmp(path, below, strlen(below)) || access(flag, F_OK)) return;
    int seen = open(getenv("HANGING_SEEN"), O_WRONLY | O_CREAT | O_APPEND, 0600);
    if (seen < 0 || write(seen, "1", 1) != 1 || close(seen)) abort();
    while (access(flag, F_OK) == 0) usleep(10000);
}

static void pass_descriptor(int descriptor) {
    char link[64], path[4096];
    snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length < 0) return;
    path[length] = 0;
    pass(path, getenv("HANGING_READS_WHILE"));
}

#define NEXT(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

DIR *opendir(const char *path) {
    pass(path, getenv("HANGING_WHILE"));
    return NEXT(opendir)(path);
}

int open64(const char *path, int flags, ...) {
    va_list rest;
    va_start(rest, flags);
    mode_t mode = va_arg(rest, mode_t);
    va_end(rest);
    pass(path, getenv("HANGING_WHILE"));
    return NEXT(open64)(path, flags, mode);
}

int statx(int directory, const char *restrict path, int flags, unsigned mask, struct statx *restrict found) {
    pass(path, getenv("HANGING_WHILE"));
    return NEXT(statx)(directory, path, flags, mask, found);
}

ssize_t pread64(int descriptor, void *buffer, size_t bytes, off64_t start) {
    pass_descriptor(descriptor);
    return NEXT(pread64)(descriptor, buffer, bytes, start);
}
