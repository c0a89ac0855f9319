#include "control/agent/relay/relay_input.h"

#include <errno.h>
#include <poll.h>
#include <stddef.h>
#include <unistd.h>

void fl_relay_input_look(fl_relay_input *input)
{
    char dropped[64];
    struct pollfd item = {.fd = STDIN_FILENO, .events = POLLIN};
    while (input->watched && poll(&item, 1, 0) == 1) {
        ssize_t n = read(STDIN_FILENO, dropped, sizeof dropped);
        if (n > 0) {
            input->spoke = true;
        } else if (n == 0 || (errno != EINTR && errno != EAGAIN)) {
            input->watched = false;
            input->ended = input->spoke;
        }
    }
}
