#include "device/system/program.h"

#include "device/random/random.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

uint64_t fl_program_build(void)
{
    struct stat file;
    if (stat("/proc/self/exe", &file) != 0) {
        return 0;
    }
    uint64_t build = fl_mix64(0, (uint64_t)file.st_size);
    build = fl_mix64(build, (uint64_t)file.st_mtim.tv_sec);
    return fl_mix64(build, (uint64_t)file.st_mtim.tv_nsec);
}

fl_status fl_program_path(char *path, size_t size_bytes)
{
    ssize_t n = readlink("/proc/self/exe", path, size_bytes);
    if (n >= 0 && (size_t)n >= size_bytes) {
        n = -1;
        errno = ENAMETOOLONG;
    }
    if (n < 0) {
        return fl_fail(FL_EIO, "/proc/self/exe: %s", strerror(errno));
    }
    path[n] = '\0';
    return FL_OK;
}

fl_status fl_program_folder(char *path, size_t size_bytes)
{
    FL_TRY(fl_program_path(path, size_bytes));
    *strrchr(path, '/') = '\0';
    return FL_OK;
}
