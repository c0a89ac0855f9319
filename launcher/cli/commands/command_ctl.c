/* frostline ctl: the commands of the control socket, by hand. What they are, and what they take,
 * comes from the controller's own table. */
#include "control/socket/ctl_request.h"
#include "device/text/plural.h"
#include "launcher/cli/cli.h"
#include "launcher/cli/ctl/ctl_ended.h"
#include "launcher/cli/ctl/ctl_help.h"
#include "launcher/cli/ctl/ctl_place.h"
#include "launcher/cli/ctl/ctl_show.h"
#include "launcher/cli/ctl/ctl_wait.h"
#include "launcher/job/text/text.h"
#include "launcher/run/runs/runs.h"

#include "device/system/clock.h"

#include <inttypes.h>
#include <jansson.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { TIMEOUT_S = 60, TIMEOUT_MOST_S = 86400, LOOK_MS = 500 };

static const int64_t FOREVER_MS = INT64_C(1) << 50;

static bool help(int argc, char **argv)
{
    if (!fl_ctl_print_word(argc, argv)) {
        fl_print_command_help(&fl_cli_command_ctl);
        fl_ctl_print_words();
    }
    return true;
}

/* ---- the request ---- */

/* A number where the whole word is one, else the word; the controller says what it thinks of it. */
static json_t *value_of(const fl_ctl_arg *arg, const char *text)
{
    char *end;
    long long integer = strtoll(text, &end, 10);
    if (arg->type == FL_CTL_CHOICE || arg->type == FL_CTL_HOST || text[0] == 0) {
        return json_string(text);
    }
    if (*end == 0) {
        return json_integer(integer);
    }
    double number = strtod(text, &end);
    return *end == 0 ? json_real(number) : json_string(text);
}

static const fl_ctl_arg *arg_named(const fl_ctl_command *c, const char *text, const char **value)
{
    const char *equals = strchr(text, '=');
    for (const fl_ctl_arg *arg = c->args; equals != NULL && arg->name != NULL; arg++) {
        size_t n = strlen(arg->name);
        if ((size_t)(equals - text) == n && strncmp(arg->name, text, n) == 0) {
            *value = equals + 1;
            return arg;
        }
    }
    return NULL;
}

/* The optional argument of which this word is the name: its value is the next word, as in `drain
 * host NAME`. NULL: the word is something else. */
static const fl_ctl_arg *arg_before(const fl_ctl_command *c, const char *word)
{
    for (const fl_ctl_arg *arg = c->args; arg->name != NULL; arg++) {
        if (!arg->required && strcmp(arg->name, word) == 0) {
            return arg;
        }
    }
    return NULL;
}

/* FIELD=VALUE of an argument that names a field, before the argument of its value: `set train.lr=1`
 * means `set train.lr 1`. Returns VALUE, or NULL: the word is something else. */
static const char *split_field(const fl_ctl_arg *next, const char *word, json_t *args)
{
    const char *equals = strchr(word, '=');
    bool takes_both = next->name != NULL && next[1].name != NULL && next->type == FL_CTL_CHOICE &&
                      next[1].type == FL_CTL_FIELD_VALUE;
    if (!takes_both || equals == NULL) {
        return NULL;
    }
    json_object_set_new(args, next->name, json_stringn(word, (size_t)(equals - word)));
    return equals + 1;
}

/* A word in the place of an optional number, as `hosts` in `drain hosts b`: the names that may
 * stand there are said here, because the run would see two arguments. True after a message. */
static bool is_misspelled(const fl_ctl_command *c, const fl_ctl_arg *next, const char *word)
{
    char shown[FL_SHOWN_MAX], names[128] = "";
    size_t n = 0;
    bool has_digit = strpbrk(word, "0123456789") != NULL;
    if (next->type != FL_CTL_INTEGER || next->required || has_digit) {
        return false;
    }
    for (const fl_ctl_arg *arg = c->args; arg->name != NULL && n < sizeof names; arg++) {
        bool is_number = arg->type == FL_CTL_INTEGER;
        n += (size_t)snprintf(names + n, sizeof names - n, "%s%s %s", arg == c->args ? "" : ", or ",
                              arg->name, is_number ? "N" : "NAME");
    }
    fl_complain("frostline ctl %s: found %s, allowed: %s", c->name,
                fl_shown(word, strlen(word), shown), names);
    return true;
}

static void complain_of_word(const char *command, const char *word)
{
    char shown[FL_SHOWN_MAX];
    fl_complain("frostline ctl: %s does not take %s; see frostline ctl %s --help", command,
                fl_shown(word, strlen(word), shown), command);
}

/* NULL after a message. */
static json_t *args_of(const fl_ctl_command *c, const char *const *words, int n)
{
    json_t *args = json_object();
    const fl_ctl_arg *next = c->args;
    for (int i = 0; i < n; i++) {
        const char *value = words[i];
        const fl_ctl_arg *arg = arg_named(c, words[i], &value);
        if (arg == NULL && i + 1 < n && (arg = arg_before(c, words[i])) != NULL) {
            value = words[++i];
        }
        if (arg == NULL && next->name != NULL && is_misspelled(c, next, words[i])) {
            json_decref(args);
            return NULL;
        }
        if (arg == NULL && next->name != NULL) {
            const char *field_value = split_field(next, words[i], args);
            next += field_value != NULL;
            value = field_value != NULL ? field_value : value;
            arg = next++;
        }
        if (arg == NULL) {
            complain_of_word(c->name, words[i]);
            json_decref(args);
            return NULL;
        }
        json_object_set_new(args, arg->name, value_of(arg, value));
    }
    return args;
}

static char *request_of(const fl_ctl_command *c, json_t *args)
{
    char id[64];
    snprintf(id, sizeof id, "%d-%" PRId64, (int)getpid(), fl_now_us());
    json_t *request = json_pack("{s:i, s:s, s:s, s:o}", "v", FL_CTL_VERSION, "id", id, "cmd",
                                c->name, "args", args);
    char *text = json_dumps(request, JSON_COMPACT);
    json_decref(request);
    return text;
}

/* ---- the reply ---- */

static int exit_of(const char *code)
{
    static const fl_ctl_error wrong[] = {FL_CTL_BAD_REQUEST, FL_CTL_BAD_VERSION,
                                         FL_CTL_UNKNOWN_COMMAND, FL_CTL_BAD_ARGUMENT};
    for (int i = 0; i < 4; i++) {
        if (strcmp(code, fl_ctl_error_text(wrong[i])) == 0) {
            return FL_EXIT_BAD_INPUT;
        }
    }
    return FL_EXIT_FAILED;
}

static int show_reply(const char *reply, bool as_json)
{
    json_t *root = json_loads(reply, 0, NULL);
    json_t *error = json_object_get(root, "error");
    const char *code = json_string_value(json_object_get(error, "code"));
    const char *message = json_string_value(json_object_get(error, "message"));
    int exit_code = FL_EXIT_DONE;
    if (as_json) {
        printf("%s\n", reply);
    }
    if (code != NULL) {
        exit_code = exit_of(code);
        fl_complain("%s: %s", code, message == NULL ? "" : message);
    } else if (!as_json) {
        fl_ctl_show(json_object_get(root, "result"), stdout);
    }
    json_decref(root);
    return exit_code;
}

static int complain_of(fl_status status)
{
    fl_complain("%s", fl_errmsg());
    return fl_exit_of(status);
}

/* Where the words go. */
typedef struct target {
    const char *name; /* as the user gave it; NULL: the newest run */
    const fl_args *args;
    bool as_json;
    bool at_once; /* status: a run that goes back is told as such, and not awaited */
    bool stops;   /* stop: a run that waits for its hosts takes no request */
    int64_t timeout_ms;
} target;

/* *ended: the run has ended because of the request, and there is no link. */
static fl_status open_link(const target *t, bool events, int64_t deadline_us, fl_ctl_place *place,
                           bool *ended, fl_ctl_client_link **link)
{
    fl_ctl_patience patience = t->at_once ? FL_CTL_TELL_BACK : FL_CTL_PATIENT;
    *ended = false;
    FL_TRY(t->stops ? fl_ctl_wait_place(t->args, t->name, deadline_us, place, ended)
                    : fl_ctl_place_await(t->args, t->name, patience, deadline_us, place));
    return *ended ? FL_OK : fl_ctl_place_open(place, events, link);
}

/* A run that goes back after a loss gives no answer. It may do so after the connection was made, so
 * the record of the run is looked at between the waits for the reply. */
static fl_status ask_at_once(fl_ctl_client_link *link, const char *request, int64_t deadline_us,
                             const char **reply)
{
    fl_status status = FL_EDEADLINE;
    while (status == FL_EDEADLINE && fl_left_ms(deadline_us) > 0) {
        int64_t left_ms = fl_left_ms(deadline_us);
        status = fl_ctl_client_ask(link, request, left_ms < LOOK_MS ? left_ms : LOOK_MS, reply);
        if (status == FL_EDEADLINE) {
            FL_TRY(fl_ctl_client_check_recovering(link));
        }
    }
    return status;
}

static int ask_run(const target *t, const char *request)
{
    fl_ctl_place place;
    fl_ctl_client_link *link = NULL;
    const char *reply = NULL;
    char *known = NULL;
    int64_t deadline_us = fl_deadline_us(t->timeout_ms);
    bool ended = false;
    fl_status status = open_link(t, false, deadline_us, &place, &ended, &link);
    if (ended) {
        fl_ctl_wait_show(request, t->as_json);
        return FL_EXIT_DONE;
    }
    if (status == FL_OK) {
        status = t->at_once ? ask_at_once(link, request, deadline_us, &reply)
                            : fl_ctl_client_insist(link, request, fl_left_ms(deadline_us), &reply);
    }
    if (status == FL_EPEER && !place.far) {
        reply = known = fl_ctl_ended_reply(place.path, request);
        status = known == NULL ? status : FL_OK;
    }
    int code = status == FL_OK ? show_reply(reply, t->as_json) : complain_of(status);
    fl_ctl_client_close(&link);
    free(known);
    return code;
}

/* ---- watch ---- */

static bool is_last(const json_t *event)
{
    static const char *const last[] = {"run.finished", "run.stopped", "run.failed"};
    const char *name = json_string_value(json_object_get(event, "event"));
    for (int i = 0; name != NULL && i < 3; i++) {
        if (strcmp(name, last[i]) == 0) {
            return true;
        }
    }
    return false;
}

/* True when this was the last one. */
static bool show_event(const char *line, bool as_json)
{
    json_t *event = json_loads(line, 0, NULL);
    bool last = is_last(event);
    if (as_json) {
        printf("%s\n", line);
    } else {
        fl_ctl_show_event(event, stdout);
    }
    fflush(stdout);
    json_decref(event);
    return last;
}

/* The next event, however late. *told: whether a line has said that this client has to wait. */
static fl_status await_event(fl_ctl_client_link *link, bool *told, const char **line,
                             int64_t *sequence)
{
    fl_status status = FL_EDEADLINE;
    while (status == FL_EDEADLINE) {
        status = fl_ctl_client_event(link, *told ? FOREVER_MS : LOOK_MS, line, sequence);
        if (status == FL_EDEADLINE && !*told && fl_ctl_client_waits_outside(link)) {
            *told = true;
            fl_complain("the run has no descriptor left for another client (its ulimit -n): waits "
                        "until other clients have ended");
        }
    }
    return status;
}

static int watch_events(const target *t)
{
    fl_ctl_place place;
    fl_ctl_client_link *link = NULL;
    const char *line = NULL;
    int64_t sequence = 0, before = 0;
    bool last = false, told = false, ended;
    fl_status status = open_link(t, true, fl_deadline_us(t->timeout_ms), &place, &ended, &link);
    while (status == FL_OK && !last) {
        status = await_event(link, &told, &line, &sequence);
        if (status == FL_OK) {
            if (before > 0 && sequence > before + 1) {
                char events[FL_COUNT_BYTES];
                fl_complain("%s lost", fl_count(sequence - before - 1, "event", events));
            }
            before = sequence;
            last = show_event(line, t->as_json);
        }
    }
    fl_ctl_client_close(&link);
    return status == FL_OK ? FL_EXIT_DONE : complain_of(status);
}

/* ---- the command ---- */

static const char *name_at(const void *context, int i)
{
    (void)context;
    const fl_ctl_command *c = i == 0 ? NULL : fl_ctl_command_at(i - 1);
    return i == 0 ? FL_CTL_WATCH : c == NULL ? NULL : c->name;
}

static bool is_command(const char *word)
{
    return strcmp(word, FL_CTL_WATCH) == 0 || fl_ctl_command_find(word) != NULL;
}

static int run_words(target *t, const char *const *words, int n)
{
    const fl_ctl_command *c = fl_ctl_command_find(words[0]);
    t->at_once = strcmp(words[0], "status") == 0;
    t->stops = strcmp(words[0], "stop") == 0;
    json_t *args = c == NULL ? NULL : args_of(c, words + 1, n - 1);
    if (c == NULL && n > 1) {
        complain_of_word(words[0], words[1]);
        return FL_EXIT_BAD_INPUT;
    }
    if (c == NULL) {
        return watch_events(t);
    }
    if (args == NULL) {
        return FL_EXIT_BAD_INPUT;
    }
    char *request = request_of(c, args);
    int code = ask_run(t, request);
    free(request);
    return code;
}

/* False after a message. */
static bool read_timeout(const fl_args *args, int64_t *timeout_ms)
{
    const char *text = fl_args_value(args, "--timeout");
    char *end = NULL;
    long seconds = text == NULL ? TIMEOUT_S : strtol(text, &end, 10);
    if (text != NULL && (*text == 0 || *end != 0 || seconds < 1 || seconds > TIMEOUT_MOST_S)) {
        char shown[FL_SHOWN_MAX];
        fl_complain("frostline ctl: --timeout: found %s, allowed: 1 to %d seconds",
                    fl_shown(text, strlen(text), shown), TIMEOUT_MOST_S);
        return false;
    }
    *timeout_ms = 1000 * (int64_t)seconds;
    return true;
}

/* Whether a word means a run, however it ended; all others are misspelled commands. */
static bool names_run(const char *word)
{
    char path[PATH_MAX];
    return strncmp(word, "tcp://", strlen("tcp://")) == 0 || fl_run_find_dir(word, path) == FL_OK;
}

static int run_ctl(const fl_args *args)
{
    /* The first word is the run, unless it is a command: a run of such a name is ./NAME. */
    int first = is_command(args->operand) ? 0 : 1;
    target t = {.name = first == 0 ? NULL : args->operand,
                .args = args,
                .as_json = fl_args_has(args, "--json")};
    if (first == args->n_operands && !names_run(args->operand)) {
        return fl_unknown_among("frostline ctl", args->operand, name_at, NULL);
    }
    if (first == args->n_operands) {
        fl_complain("frostline ctl: a command is missing; see frostline ctl --help");
        return FL_EXIT_BAD_INPUT;
    }
    if (!is_command(args->operands[first])) {
        return fl_unknown_among("frostline ctl", args->operands[first], name_at, NULL);
    }
    if (!read_timeout(args, &t.timeout_ms)) {
        return FL_EXIT_BAD_INPUT;
    }
    return run_words(&t, args->operands + first, args->n_operands - first);
}

const fl_cli_command fl_cli_command_ctl = {
    .name = "ctl",
    .operand = "[RUN] COMMAND [ARGUMENT]...",
    .takes_more = true,
    .summary = "Inspect or control a run while it trains.",
    .details = "RUN is a run directory, or the name of a run or job below runs/. Without\n"
               "RUN, or if several runs match, the newest live run is taken. tcp://ADDRESS:PORT\n"
               "is a run on another machine. A command returns once it has taken effect.\n"
               "Exit code 0: done; 2: there is no such run, or the request is invalid; 3: the\n"
               "run refused the request, ended first or did not answer in time.\n",
    .options = {{"--json", 0, NULL, "print the reply as the run sent it, in one line"},
                {"--timeout", 0, "SECONDS", "longest wait for the reply; default: 60"},
                {"--key", 0, "FILE", "your secret key, where RUN is tcp://ADDRESS:PORT"},
                {"--server", 0, "FILE", "the run's public key"}},
    .exit_codes = {{FL_EXIT_BAD_INPUT, "there is no such run, or the request is invalid"},
                   {FL_EXIT_FAILED,
                    "the run refused the request, ended first or did not answer in time"}},
    .run = run_ctl,
    .help = help,
    .word_at = fl_ctl_word_at,
};
