/* frostline schema */
#include "launcher/cli/cli.h"
#include "launcher/job/job.h"
#include "launcher/job/text/text.h"

#include <string.h>

static int print_field(const char *path)
{
    int index = fl_schema_find(path);
    if (index < 0) {
        char shown[FL_SHOWN_MAX];
        fl_status status = fl_job_unknown_path(path);
        fl_complain("frostline schema: %s: %s", fl_shown(path, strlen(path), shown), fl_errmsg());
        return fl_exit_of(status);
    }
    const fl_field *field = fl_schema_field(index);
    char allowed[FL_FIELD_ALLOWED_MAX];
    printf("%s\n  %s\n  allowed: %s\n  default: %s\n  run --resume: %s\n", field->path, field->doc,
           fl_field_allowed(field, allowed), field->initial,
           fl_field_may_change(field) ? "may change" : "must stay");
    for (int k = 0; field->list != NULL && k < field->list->n_keys; k++) {
        const fl_field *key = &field->list->key[k];
        printf("  %s: %s\n    allowed: %s\n", key->path, key->doc, fl_field_allowed(key, allowed));
    }
    return FL_EXIT_DONE;
}

static int print_list(void)
{
    for (int i = 0; i < fl_schema_n_fields(); i++) {
        const fl_field *field = fl_schema_field(i);
        char allowed[FL_FIELD_ALLOWED_MAX];
        printf("%-19s %-10s %s\n", field->path, field->initial, fl_field_allowed(field, allowed));
    }
    return FL_EXIT_DONE;
}

static int run_schema(const fl_args *args)
{
    bool yaml = fl_args_has(args, "--yaml"), markdown = fl_args_has(args, "--markdown");
    if (yaml + markdown + (args->operand != NULL) > 1) {
        fl_complain("frostline schema: give only one of FIELD, --yaml and --markdown");
        return FL_EXIT_BAD_INPUT;
    }
    if (args->operand != NULL) {
        return print_field(args->operand);
    }
    if (!yaml && !markdown) {
        return print_list();
    }
    fl_status status = yaml ? fl_schema_write_yaml(stdout) : fl_schema_write_markdown(stdout);
    return status == FL_OK ? FL_EXIT_DONE : FL_EXIT_FAILED; /* fl_main says why */
}

const fl_cli_command fl_cli_command_schema = {
    .name = "schema",
    .operand = "FIELD",
    .operand_is_optional = true,
    .summary = "List the fields of a job with defaults and allowed values.",
    .details = "With FIELD, such as train.lr, describe that field.\n",
    .options = {{"--yaml", 0, NULL, "as an annotated job file: configs/reference.yaml"},
                {"--markdown", 0, NULL, "as the tables of docs/job.md"}},
    .run = run_schema,
};
