#include "launcher/cli/cli.h"

int main(int argc, char **argv)
{
    return fl_main(argc, argv);
}
