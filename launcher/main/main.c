#include "launcher/main/commands.h"

int main(int argc, char **argv)
{
    return fl_main(argc, argv, fl_commands);
}
