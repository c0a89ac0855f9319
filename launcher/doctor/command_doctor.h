/* frostline doctor: whether this host has what runs need. */
#ifndef FL_LAUNCHER_DOCTOR_COMMAND_DOCTOR_H
#define FL_LAUNCHER_DOCTOR_COMMAND_DOCTOR_H

#include "launcher/cli/cli.h"

extern const fl_cli_command fl_cli_command_doctor;

#endif
