#include "autodp/net/host_id.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

uint64_t fl_host_id(void)
{
    char text[256] = "";
    FILE *file = fopen("/proc/sys/kernel/random/boot_id", "re");
    size_t n = 0;
    if (file != NULL) {
        n = fread(text, 1, 128, file);
        fclose(file);
    }
    ssize_t more = readlink("/proc/self/ns/pid", text + n, sizeof text - n);
    return XXH3_64bits(text, n + (more > 0 ? (size_t)more : 0));
}

uint64_t fl_host_id_at(const char *address)
{
    uint64_t id = fl_host_id();
    return address == NULL ? id : XXH3_64bits_withSeed(address, strlen(address), id);
}
