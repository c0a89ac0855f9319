#include "device/program.h"

#include "device/random.h"

#include <sys/stat.h>

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
