/* frostline key: a pair of keys for control sockets on a network. */
#include "launcher/cli/cli.h"

#include "control/link/keys/zap_auth.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <zmq.h>

static fl_status write_key(const char *path, mode_t mode, const char *key)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode);
    if (fd < 0 && errno == EEXIST) {
        return fl_fail(FL_EIO, "%s: exists already; a key is never overwritten", path);
    }
    if (fd < 0) {
        return fl_fail(FL_EIO, "%s: %s", path, strerror(errno));
    }
    int n = dprintf(fd, "%s\n", key);
    if (close(fd) != 0 || n != FL_KEY_MAX) {
        return fl_fail(FL_EIO, "%s: could not be written", path);
    }
    return FL_OK;
}

static int run_key(const fl_args *args)
{
    char public_key[FL_KEY_MAX], secret_key[FL_KEY_MAX], path[PATH_MAX];
    snprintf(path, sizeof path, "%s.pub", args->operand);
    fl_status status = zmq_curve_keypair(public_key, secret_key) == 0
                           ? FL_OK
                           : fl_fail(FL_ENOTSUP, "this ZeroMQ has no CURVE");
    if (status == FL_OK) {
        status = write_key(args->operand, 0600, secret_key);
    }
    if (status == FL_OK) {
        status = write_key(path, 0644, public_key);
    }
    explicit_bzero(secret_key, sizeof secret_key);
    if (status != FL_OK) {
        fl_complain("%s", fl_errmsg());
        return fl_exit_of(status);
    }
    printf("%s: the secret key\n%s: the public key\n", args->operand, path);
    return FL_EXIT_DONE;
}

const fl_cli_command fl_cli_command_key = {
    .name = "key",
    .operand = "FILE",
    .summary = "Create a key pair for control.listen, or for one of its clients.",
    .details = "Writes the secret key to FILE, readable by you alone, and the public key to\n"
               "FILE.pub. Neither file may exist.\n",
    .run = run_key,
};
