#include "device/system/machine_name.h"

#include <fcntl.h>
#include <string.h>
#include <unistd.h>

const char *fl_boot_id(char id[FL_BOOT_ID_BYTES])
{
    int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, id, FL_BOOT_ID_BYTES - 1);
    if (fd >= 0) {
        close(fd);
    }
    id[n < 0 ? 0 : n] = '\0';
    id[strcspn(id, "\n")] = '\0';
    return id;
}

const char *fl_hostname(char name[FL_HOSTNAME_BYTES])
{
    memset(name, 0, FL_HOSTNAME_BYTES);
    (void)gethostname(name, FL_HOSTNAME_BYTES - 1);
    return name;
}
