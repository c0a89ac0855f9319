/* What the control socket takes for a request, and what it says of all else. */
#include "control/socket/ctl_request.h"

#include <jansson.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static fl_ctl_request request;
static char message[FL_CTL_MESSAGE_MAX];

static fl_ctl_error take(const char *text)
{
    return fl_ctl_request_read(text, strlen(text), &request, message);
}

static void test_request__reads_what_is_sound(void **state)
{
    (void)state;
    assert_int_equal(take("{\"v\": 1, \"id\": \"a\", \"cmd\": \"status\"}"), FL_CTL_OK);
    assert_string_equal(request.id, "a");
    assert_string_equal(request.command->name, "status");
    assert_int_equal(
        take("{\"args\": {\"frozen\": 3}, \"cmd\": \"plan\", \"id\": \"b\", \"v\": 1}"), FL_CTL_OK);
    assert_false(request.value[0].given);
    assert_true(request.value[1].given);
    assert_int_equal(request.value[1].integer, 3);
    assert_int_equal(take("{\"v\":1,\"id\":\"c\",\"cmd\":\"set\",\"args\":{\"field\":\"log.level\","
                          "\"value\":\"warn\"}}"),
                     FL_CTL_OK);
    assert_int_equal(request.value[0].integer, 3);
    assert_string_equal(request.value[1].text, "warn");
    assert_int_equal(take("{\"v\":1,\"id\":\"d\",\"cmd\":\"drain\",\"args\":{\"host\":\"7\"}}"),
                     FL_CTL_OK);
    assert_false(request.value[0].given);
    assert_string_equal(request.value[1].text, "7");
}

static void test_request__says_what_is_wrong(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        fl_ctl_error error;
        const char *says, *id;
    } wrong[] = {
        {"", FL_CTL_BAD_REQUEST, "not JSON", ""},
        {"{", FL_CTL_BAD_REQUEST, "not JSON", ""},
        {"[]", FL_CTL_BAD_REQUEST, "an object is needed", ""},
        {"7", FL_CTL_BAD_REQUEST, "not JSON", ""},
        {"{} {}", FL_CTL_BAD_REQUEST, "not JSON", ""},
        {"{\"v\": 1}", FL_CTL_BAD_REQUEST, "id: a string", ""},
        {"{\"v\": 1, \"id\": 7}", FL_CTL_BAD_REQUEST, "id: a string", ""},
        {"{\"v\": 1, \"id\": \"\"}", FL_CTL_BAD_REQUEST, "id: a string", ""},
        {"{\"v\": 2, \"id\": \"x\", \"cmd\": \"status\"}", FL_CTL_BAD_VERSION, "v: 1", "x"},
        {"{\"v\": 1.0, \"id\": \"x\", \"cmd\": \"status\"}", FL_CTL_BAD_VERSION, "v: 1", "x"},
        {"{\"v\": 1, \"id\": \"x\"}", FL_CTL_BAD_REQUEST, "cmd: a string", "x"},
        {"{\"v\": 1, \"id\": \"x\", \"cmd\": \"statu\"}", FL_CTL_UNKNOWN_COMMAND, "\"statu\"", "x"},
        {"{\"v\": 1, \"id\": \"x\", \"cmd\": \"status\", \"extra\": 1}", FL_CTL_BAD_REQUEST,
         "\"extra\"", "x"},
        {"{\"v\": 1, \"id\": \"x\", \"id\": \"y\", \"cmd\": \"status\"}", FL_CTL_BAD_REQUEST,
         "duplicate", ""},
        {"{\"v\": 1, \"id\": \"\xff\", \"cmd\": \"status\"}", FL_CTL_BAD_REQUEST,
         "decode byte 0xff", ""},
        {"{\"v\": 1, \"id\": \"a\\u0000b\", \"cmd\": \"status\"}", FL_CTL_BAD_REQUEST, "u0000", ""},
        {"{\"v\": 1, \"id\": \"x\", \"cmd\": \"status\", \"args\": []}", FL_CTL_BAD_REQUEST,
         "args: an object", "x"},
        {"{\"v\": 1, \"id\": \"x\", \"cmd\": \"status\", \"args\": {\"a\": 1}}",
         FL_CTL_BAD_ARGUMENT, "no argument \"a\"", "x"},
        {"{\"v\": 1, \"id\": \"x\", \"cmd\": \"plan\", \"args\": {\"devices\": 1.5}}",
         FL_CTL_BAD_ARGUMENT, "an integer from 1 to", "x"},
        {"{\"v\": 1, \"id\": \"x\", \"cmd\": \"plan\", \"args\": {\"devices\": \"2\"}}",
         FL_CTL_BAD_ARGUMENT, "an integer from 1 to", "x"},
        {"{\"v\": 1, \"id\": \"x\", \"cmd\": \"plan\", \"args\": {\"devices\": 1e400}}",
         FL_CTL_BAD_REQUEST, "real number overflow", ""},
        {"{\"v\": 1, \"id\": \"x\", \"cmd\": \"plan\", \"args\": {\"devices\": "
         "99999999999999999999}}",
         FL_CTL_BAD_REQUEST, "too big integer", ""},
        {"{\"v\": 1, \"id\": \"x\", \"cmd\": \"stop\", \"args\": {\"when\": \"later\"}}",
         FL_CTL_BAD_ARGUMENT, "allowed: now, epoch", "x"},
        {"{\"v\": 1, \"id\": \"x\", \"cmd\": \"set\", \"args\": {\"field\": \"train.lr\"}}",
         FL_CTL_BAD_ARGUMENT, "value: missing", "x"},
        {"{\"v\": 1, \"id\": \"x\", \"cmd\": \"set\", \"args\": {\"field\": \"train.lr\", "
         "\"value\": null}}",
         FL_CTL_BAD_ARGUMENT, "a number or a word", "x"},
        {"{\"v\": 1, \"id\": \"x\", \"cmd\": \"drain\", \"args\": {\"host\": 7}}",
         FL_CTL_BAD_ARGUMENT, "host: allowed: a name of 1 to 64 bytes", "x"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        fl_ctl_error error = take(wrong[i].text);
        if (error != wrong[i].error || strstr(message, wrong[i].says) == NULL ||
            strcmp(request.id, wrong[i].id) != 0) {
            fail_msg("%s: %s, id '%s': %s", wrong[i].text, fl_ctl_error_text(error), request.id,
                     message);
        }
    }
}

/* Would catch: a recursive parser that runs before the size and the depth of its input are checked.
 */
static void test_request__is_bounded(void **state)
{
    (void)state;
    size_t n = FL_CTL_REQUEST_MAX;
    char *text = malloc(n + 2);
    memset(text, '[', n + 1);
    assert_int_equal(fl_ctl_request_read(text, n, &request, message), FL_CTL_BAD_REQUEST);
    assert_non_null(strstr(message, "deep"));
    assert_int_equal(fl_ctl_request_read(text, n + 1, &request, message), FL_CTL_BAD_REQUEST);
    assert_non_null(strstr(message, "bytes; allowed"));
    free(text);
    /* Brackets in a string are none. */
    assert_int_equal(take("{\"v\": 1, \"id\": \"[[[[[[[[[[\\\"[[[\", \"cmd\": \"status\"}"),
                     FL_CTL_OK);
    assert_string_equal(request.id, "[[[[[[[[[[\"[[[");
    char id[FL_CTL_ID_MAX + 2], whole[256];
    memset(id, 'i', sizeof id);
    id[FL_CTL_ID_MAX + 1] = 0;
    snprintf(whole, sizeof whole, "{\"v\": 1, \"id\": \"%s\", \"cmd\": \"status\"}", id);
    assert_int_equal(take(whole), FL_CTL_BAD_REQUEST);
    snprintf(whole, sizeof whole, "{\"v\": 1, \"id\": \"%s\", \"cmd\": \"status\"}", id + 1);
    assert_int_equal(take(whole), FL_CTL_OK);
}

/* Would catch: a command that help, docs or a client's table cannot show. */
static void test_request__the_table_is_complete(void **state)
{
    (void)state;
    char allowed[256];
    int n = 0;
    for (const fl_ctl_command *c; (c = fl_ctl_command_at(n)) != NULL; n++) {
        assert_ptr_equal(fl_ctl_command_find(c->name), c);
        assert_true(c->run != NULL && c->doc[strlen(c->doc) - 1] == '.');
        bool optional = false;
        for (const fl_ctl_arg *a = c->args; a->name != NULL; a++) {
            assert_true(strlen(fl_ctl_allowed(a, allowed, sizeof allowed)) > 0 && a->doc != NULL);
            assert_false(optional && a->required); /* they are given in this order */
            optional = !a->required;
        }
    }
    assert_true(n >= 8);
    assert_null(fl_ctl_command_find("watch")); /* the client's own */
}

/* Would catch: a command or an argument that docs/control/schema.json lacks or describes
 * differently.
 */
static void test_request__the_schema_tells_what_the_table_does(void **state)
{
    (void)state;
    static const char *const types[] = {"integer", "number", NULL, NULL, NULL};
    json_t *schema = json_load_file(FL_SOURCE_DIR "/docs/control/schema.json", 0, NULL);
    json_t *defs = json_object_get(schema, "$defs");
    assert_non_null(defs);
    for (int i = 0; fl_ctl_command_at(i) != NULL; i++) {
        const fl_ctl_command *c = fl_ctl_command_at(i);
        char name[64];
        snprintf(name, sizeof name, "%s_result", c->name);
        assert_non_null(json_object_get(defs, name));
        snprintf(name, sizeof name, "%s_request", c->name);
        json_t *args =
            json_object_get(json_object_get(json_object_get(defs, name), "properties"), "args");
        json_t *properties = json_object_get(args, "properties");
        size_t n = 0, n_required = 0;
        for (const fl_ctl_arg *a = c->args; a->name != NULL; a++, n++) {
            json_t *of = json_object_get(properties, a->name);
            assert_non_null(of);
            n_required += a->required;
            if (types[a->type] != NULL) {
                assert_string_equal(json_string_value(json_object_get(of, "type")), types[a->type]);
                assert_true(json_number_value(json_object_get(of, "minimum")) == a->least);
                assert_true(json_number_value(json_object_get(of, "maximum")) == a->most);
            }
            for (size_t k = 0; a->type == FL_CTL_CHOICE && a->choices[k] != NULL; k++) {
                json_t *word = json_array_get(json_object_get(of, "enum"), k);
                assert_string_equal(json_string_value(word), a->choices[k]);
            }
        }
        assert_int_equal(json_object_size(properties), n);
        assert_int_equal(json_array_size(json_object_get(args, "required")), n_required);
    }
    json_decref(schema);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_request__reads_what_is_sound),
        cmocka_unit_test(test_request__says_what_is_wrong),
        cmocka_unit_test(test_request__is_bounded),
        cmocka_unit_test(test_request__the_table_is_complete),
        cmocka_unit_test(test_request__the_schema_tells_what_the_table_does),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
