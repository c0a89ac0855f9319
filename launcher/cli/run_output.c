#include "launcher/cli/run_output.h"

#include "launcher/cli/cli.h"
#include "launcher/cli/output_path.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <unistd.h>

fl_status fl_replace_file(const char *path, fl_file_writer *write, const void *context)
{
    char beside[PATH_MAX];
    FL_TRY(fl_output_path_check("cannot write", path));
    int n = snprintf(beside, sizeof beside, "%s.%ld", path, (long)getpid());
    if (n < 0 || (size_t)n >= sizeof beside) {
        return fl_fail(FL_EINVAL, "the path %.64s... is too long", path);
    }
    int fd = open(beside, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    if (fd < 0) {
        return fl_fail(FL_EIO, "%s: %s", path, strerror(errno));
    }
    FILE *file = fdopen(fd, "wb");
    fl_status status = file == NULL ? fl_fail(FL_ENOMEM, "out of memory") : write(context, file);
    bool closed = file == NULL ? close(fd) == 0 : fclose(file) == 0;
    if (status == FL_OK && (!closed || rename(beside, path) != 0)) {
        status = fl_fail(FL_EIO, "%s", strerror(errno));
    }
    if (status != FL_OK) {
        unlink(beside);
        return fl_within(status, "%s", path);
    }
    return FL_OK;
}

void fl_say_gaps(const fl_lines *file)
{
    if (file->missing[0] != '\0') {
        fl_complain("%s: %s", file->name, file->missing);
    }
    if (file->n_bad > 0) {
        fl_complain("%s: %lld of %lld lines could not be read; the first is line %lld: %s",
                    file->name, (long long)file->n_bad, (long long)file->n,
                    (long long)file->first_bad, file->why);
    }
}
