#include "launcher/main/commands.h"

#include <signal.h>

int main(int argc, char **argv)
{
    signal(SIGXFSZ, SIG_IGN); /* a write beyond the limit of a file's size fails with EFBIG */
    return fl_main(argc, argv, fl_commands);
}
