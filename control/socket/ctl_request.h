/* Requests of the control socket: JSON of a fixed form, checked against the table of commands
 * before anything is executed.
 *
 *     {"v": 1, "id": "7", "cmd": "freeze", "args": {"blocks": 3}}
 *
 * Pure: bytes to a value. Any other form is refused with a code and a sentence. */
#ifndef FL_CONTROL_SOCKET_CTL_REQUEST_H
#define FL_CONTROL_SOCKET_CTL_REQUEST_H

#include <frostline/status.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    FL_CTL_VERSION = 1,
    FL_CTL_REQUEST_MAX = 16 * 1024, /* bytes */
    FL_CTL_DEPTH_MAX = 4,           /* of brackets; a request needs two */
    FL_CTL_ID_MAX = 64,             /* bytes, without the zero */
    FL_CTL_TEXT_MAX = 64,           /* bytes of an argument, without the zero */
    FL_CTL_ARGS_MAX = 5,            /* of a command */
    FL_CTL_MESSAGE_MAX = 1024,
};

/* Why a request is refused; the words are part of the protocol. */
#define FL_CTL_ERROR_MAP(X)                                                                        \
    X(FL_CTL_OK, "ok")                                                                             \
    X(FL_CTL_BAD_REQUEST, "bad_request")         /* not of the form above */                       \
    X(FL_CTL_BAD_VERSION, "bad_version")         /* v is not supported */                          \
    X(FL_CTL_UNKNOWN_COMMAND, "unknown_command") /* no command has this name */                    \
    X(FL_CTL_BAD_ARGUMENT, "bad_argument")   /* not an argument of the command, or out of range */ \
    X(FL_CTL_ID_REUSED, "id_reused")         /* the id belongs to another request */               \
    X(FL_CTL_NOT_AVAILABLE, "not_available") /* this run, or this version, does not support it */  \
    X(FL_CTL_REFUSED, "refused")             /* cannot be done now; the message says why */        \
    X(FL_CTL_BUSY, "busy")                   /* too many requests are waiting */                   \
    X(FL_CTL_RECOVERING, "recovering")       /* the run goes back after a loss: ask again */       \
    X(FL_CTL_OVER, "over")                   /* the run ended before it took effect */

#define FL_CTL_AS_ENUM(name, text) name,
typedef enum fl_ctl_error { FL_CTL_ERROR_MAP(FL_CTL_AS_ENUM) } fl_ctl_error;
#undef FL_CTL_AS_ENUM

const char *fl_ctl_error_text(fl_ctl_error error);

typedef enum fl_ctl_type {
    FL_CTL_INTEGER,
    FL_CTL_NUMBER,
    FL_CTL_CHOICE,
    FL_CTL_HOST,        /* the name of one */
    FL_CTL_FIELD_VALUE, /* a number or a word; the command's handler checks it */
} fl_ctl_type;

typedef struct fl_ctl_arg {
    const char *name;
    fl_ctl_type type;
    bool required;
    double least, most;         /* range of an integer or a number */
    const char *const *choices; /* words of a choice; ended by NULL */
    const char *doc;
} fl_ctl_arg;

/* The value of an argument. */
typedef struct fl_ctl_value {
    bool given;
    int64_t integer;                /* of an integer; of a choice: its index */
    double number;                  /* of a number or an integer */
    char text[FL_CTL_TEXT_MAX + 1]; /* the value as a word */
} fl_ctl_value;

typedef struct fl_ctl fl_ctl;
typedef struct fl_ctl_call fl_ctl_call;

typedef struct fl_ctl_command {
    const char *name;
    const char *doc;
    bool changes;                         /* it changes the run: a repeated id is executed once */
    fl_ctl_arg args[FL_CTL_ARGS_MAX + 1]; /* ended by an element without a name */
    void (*run)(fl_ctl *ctl, fl_ctl_call *call);
    /* Add the fields of the reply once the plan that was asked for runs; NULL: those of the plan.
     */
    void (*result)(const fl_ctl *ctl, fl_ctl_call *call);
} fl_ctl_command;

/* All commands; NULL after the last. */
const fl_ctl_command *fl_ctl_command_at(int index);
const fl_ctl_command *fl_ctl_command_find(const char *name);

/* A valid request. id is "" until one was read. */
typedef struct fl_ctl_request {
    char id[FL_CTL_ID_MAX + 1];
    const fl_ctl_command *command;
    fl_ctl_value value[FL_CTL_ARGS_MAX]; /* in the order of the command's table */
    uint64_t fingerprint;                /* hash of the request's bytes */
} fl_ctl_request;

/* Read a request. On any error but FL_CTL_OK, `message` says what was found and what is allowed;
 * request->id then still holds the id, if one could be read. Threads: pure; any. */
fl_ctl_error fl_ctl_request_read(const char *text, size_t size_bytes, fl_ctl_request *request,
                                 char message[FL_CTL_MESSAGE_MAX]);

/* "an integer from 0 to 512", for messages and help. Returns text. */
const char *fl_ctl_allowed(const fl_ctl_arg *arg, char *text, size_t size_bytes);

#endif
