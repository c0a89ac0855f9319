#include "launcher/main/commands.h"

#include "launcher/doctor/command_doctor.h"
#include "launcher/pages/command_pages.h"
#include "launcher/top/command_top.h"

const fl_cli_command *const fl_commands[] = {
    &fl_cli_command_run,      &fl_cli_command_validate,    &fl_cli_command_agent,
    &fl_cli_command_manifest, &fl_cli_command_doctor,      &fl_cli_command_evaluate,
    &fl_cli_command_predict,  &fl_cli_command_check_model, &fl_cli_command_plan,
    &fl_cli_command_schedule, &fl_cli_command_ledger,      &fl_cli_command_list,
    &fl_cli_command_ctl,      &fl_cli_command_top,         &fl_cli_command_key,
    &fl_cli_command_schema,   &fl_cli_command_report,      &fl_cli_command_diff,
    &fl_cli_command_export,   &fl_cli_command_tokenize,    &fl_cli_command_trace_report,
    &fl_cli_command_pages,    &fl_cli_command_help,        NULL,
};
