#include "control/link/keys/key_file.h"

#include "device/errors/failure.h"

#include <errno.h>
#include <linux/magic.h>
#include <string.h>
#include <sys/vfs.h>

bool fl_key_file_is_private(const struct stat *info, bool in_memory)
{
    mode_t others = info->st_mode & 077;
    bool by_group = others == S_IRGRP && info->st_uid == 0 && in_memory;
    return S_ISREG(info->st_mode) && (others == 0 || by_group);
}

fl_status fl_key_file_check(int fd, const char *path)
{
    struct stat info;
    struct statfs system;
    if (fstat(fd, &info) != 0 || fstatfs(fd, &system) != 0) {
        return fl_fail(FL_EINVAL, "%s: %s", path, strerror(errno));
    }
    if (!S_ISREG(info.st_mode)) {
        return fl_fail(FL_EINVAL, "%s: not a file", path);
    }
    return fl_key_file_is_private(&info, system.f_type == TMPFS_MAGIC)
               ? FL_OK
               : fl_fail(FL_EINVAL,
                         "%s: others may read this secret: found mode 0%o of user %u; allowed: "
                         "mode 0600 or 0400; of root, on a tmpfs, as from a Secret with fsGroup, "
                         "also 0440",
                         path, (unsigned)(info.st_mode & 07777), (unsigned)info.st_uid);
}
