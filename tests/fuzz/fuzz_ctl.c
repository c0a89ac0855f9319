/* Any bytes for a request: no crash; what is accepted is complete and within its bounds; what is
 * refused is refused with a sentence that a reply can carry. */
#include "control/events/json.h"
#include "control/socket/ctl_request.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(bool holds, const char *what)
{
    if (!holds) {
        fprintf(stderr, "%s\n", what);
        abort();
    }
}

static void check_value(const fl_ctl_arg *arg, const fl_ctl_value *value)
{
    check(value->given || !arg->required, "a required argument is missing");
    if (value->given && (arg->type == FL_CTL_INTEGER || arg->type == FL_CTL_NUMBER)) {
        check(value->number >= arg->least && value->number <= arg->most, "out of range");
    }
    if (value->given && arg->type == FL_CTL_CHOICE) {
        check(strcmp(arg->choices[value->integer], value->text) == 0, "not the choice");
    }
    if (value->given && arg->type == FL_CTL_HOST) {
        check(value->text[0] != 0, "no word");
    }
    check(strlen(value->text) <= FL_CTL_TEXT_MAX, "a text without an end");
}

static void check_text(const char *text)
{
    fl_json j = {0};
    fl_json_object(&j, NULL);
    fl_json_text(&j, "text", text);
    fl_json_close(&j, '}');
    json_t *root = json_loadb(j.text, j.n, 0, NULL);
    check(root != NULL, "a reply that is not JSON");
    json_decref(root);
    fl_json_fini(&j);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fl_ctl_request request;
    char message[FL_CTL_MESSAGE_MAX];
    char *copy = malloc(size == 0 ? 1 : size); /* so that reading beyond it is seen */
    if (size > 0) {
        memcpy(copy, data, size);
    }
    fl_ctl_error error = fl_ctl_request_read(copy, size, &request, message);
    free(copy);
    if (error == FL_CTL_OK) {
        check(request.command != NULL && request.id[0] != 0, "accepted, and incomplete");
        for (int i = 0; request.command->args[i].name != NULL; i++) {
            check_value(&request.command->args[i], &request.value[i]);
        }
    } else {
        check(message[0] != 0, "refused without a word");
        check_text(message);
    }
    check_text(request.id);
    return 0;
}
