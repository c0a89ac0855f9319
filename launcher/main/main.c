#include "launcher/main/commands.h"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

/* A file that is opened later must not get the number of a standard stream that the caller has
 * closed: workers and agents put other files there. To read or write it fails with EBADF as before.
 */
static void fill_standard_streams(void)
{
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++) {
        if (fcntl(fd, F_GETFD) < 0) {
            (void)!open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY);
        }
    }
}

int main(int argc, char **argv)
{
    fill_standard_streams();
    signal(SIGXFSZ, SIG_IGN); /* a write beyond the limit of a file's size fails with EFBIG */
    return fl_main(argc, argv, fl_commands);
}
