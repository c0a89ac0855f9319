/* frostline key: a pair of keys for control sockets on a network. */
#include "device/text/shell_text.h"
#include "device/text/shown_text.h"
#include "launcher/cli/cli.h"
#include "launcher/cli/output_path.h"

#include "control/link/keys/zap_auth.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zmq.h>

static fl_status check_new(const char *path)
{
    char shown[FL_SHOWN_PATH_BYTES];
    struct stat what;
    return lstat(path, &what) == 0
               ? fl_fail(FL_EIO, "%s: exists already; a key is never overwritten",
                         fl_text_shown(path, shown, sizeof shown))
               : FL_OK; /* opening reports any other problem */
}

/* Leaves no file on failure. */
static fl_status write_key(const char *path, mode_t mode, const char *key)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode);
    if (fd < 0) {
        char shown[FL_SHOWN_PATH_BYTES];
        return errno == EEXIST ? check_new(path)
                               : fl_fail(FL_EIO, "%s: %s", fl_text_shown(path, shown, sizeof shown),
                                         strerror(errno));
    }
    int n = dprintf(fd, "%s\n", key);
    if (close(fd) != 0 || n != FL_KEY_MAX) {
        unlink(path);
        return fl_fail(FL_EIO, "%s: could not be written", path);
    }
    return FL_OK;
}

/* Both files or none. */
static fl_status write_pair(const char *secret_path, const char *public_path)
{
    char public_key[FL_KEY_MAX], secret_key[FL_KEY_MAX];
    FL_TRY(check_new(secret_path));
    FL_TRY(check_new(public_path));
    if (zmq_curve_keypair(public_key, secret_key) != 0) {
        return fl_fail(FL_ENOTSUP, "this ZeroMQ has no CURVE");
    }
    fl_status status = write_key(secret_path, 0600, secret_key);
    explicit_bzero(secret_key, sizeof secret_key);
    FL_TRY(status);
    status = write_key(public_path, 0644, public_key);
    if (status != FL_OK) {
        unlink(secret_path);
    }
    return status;
}

static fl_status make_keys(const char *path)
{
    char public_path[PATH_MAX], shown[FL_SHELL_PATH_BYTES];
    if (strcmp(path, "-") == 0) {
        return fl_output_path_check("FILE", path);
    }
    if (snprintf(public_path, sizeof public_path, "%s.pub", path) >= (int)sizeof public_path) {
        return fl_fail(FL_EINVAL, "FILE: the path %.64s... is too long", path);
    }
    FL_TRY(write_pair(path, public_path));
    fl_shell_shown(path, shown, sizeof shown);
    printf("%s: the secret key\n%s.pub: the public key\n", shown, shown);
    return FL_OK;
}

static int run_key(const fl_args *args)
{
    fl_status status = make_keys(args->operand);
    if (status != FL_OK) {
        fl_complain("%s", fl_errmsg());
    }
    return fl_exit_of(status);
}

const fl_cli_command fl_cli_command_key = {
    .name = "key",
    .operand = "FILE",
    .summary = "Create a key pair for control.listen, or for one of its clients.",
    .details = "Writes the secret key to FILE, readable by you alone, and the public key to\n"
               "FILE.pub. Neither file may exist.\n",
    .run = run_key,
};
