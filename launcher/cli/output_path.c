#include "launcher/cli/output_path.h"

#include "device/errors/failure.h"
#include "device/system/files/file_kind.h"

#include <string.h>
#include <sys/stat.h>

fl_status fl_output_path_check(const char *name, const char *path)
{
    struct stat what;
    if (strcmp(path, "-") == 0) {
        return fl_fail(FL_EINVAL, "%s: found -; allowed: the path of a file (./- for that name)",
                       name);
    }
    if (lstat(path, &what) != 0 || S_ISREG(what.st_mode)) {
        return FL_OK; /* opening reports any other problem */
    }
    return fl_fail(FL_EINVAL,
                   "%s: %s is %s, which is left as it is; allowed: a regular file, or a new name",
                   name, path, fl_file_kind(what.st_mode));
}

fl_status fl_output_folder_check(const char *name, const char *path)
{
    struct stat what;
    if (strcmp(path, "-") == 0) {
        return fl_fail(FL_EINVAL, "%s: found -; allowed: the path of a folder (./- for that name)",
                       name);
    }
    if (stat(path, &what) != 0 || S_ISDIR(what.st_mode)) {
        return FL_OK; /* making it reports any other problem */
    }
    return fl_fail(FL_EINVAL, "%s: %s is %s; allowed: a folder, or a new name", name, path,
                   fl_file_kind(what.st_mode));
}
