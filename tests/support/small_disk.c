#include "support/small_disk.h"

#include "support/folder.h"

#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <unistd.h>

bool small_disk_mount(const char *folder, const char *options)
{
    uid_t uid = geteuid();
    bool alone = unshare(uid == 0 ? CLONE_NEWNS : CLONE_NEWUSER | CLONE_NEWNS) == 0;
    FILE *map = alone && uid != 0 ? fopen("/proc/self/uid_map", "w") : NULL;
    if (map != NULL) {
        fprintf(map, "0 %u 1", (unsigned)uid);
        fclose(map);
    }
    return alone && mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0 &&
           mount("small", folder, "tmpfs", 0, options) == 0;
}

void small_disk_fill(const char *folder)
{
    char path[FOLDER_SIZE + 16], zeros[4096];
    snprintf(path, sizeof path, "%s/filler", folder);
    memset(zeros, 0, sizeof zeros);
    int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    while (write(fd, zeros, sizeof zeros) > 0) {
    }
    close(fd);
}
