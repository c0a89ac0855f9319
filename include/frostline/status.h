/* Status codes, and the message that goes with the last failure of this thread. */
#ifndef FROSTLINE_STATUS_H
#define FROSTLINE_STATUS_H

#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

/* One line a code: name, number, text. The three marked "regroup" mean that the training group
 * is broken while this worker is sound: it leaves its collective and asks the controller what now.
 * Every other failure ends the worker. */
#define FL_STATUS_MAP(X)                                                                           \
    X(FL_OK, 0, "success")                                                                         \
    X(FL_EINVAL, -1, "bad input")                                                                  \
    X(FL_ENOMEM, -2, "out of memory")                                                              \
    X(FL_EBUDGET, -3, "over the memory budget")                                                    \
    X(FL_EIO, -4, "input or output failed")                                                        \
    X(FL_EFORMAT, -5, "malformed data")                                                            \
    X(FL_ENOTSUP, -6, "not supported")                                                             \
    X(FL_EPEER, -7, "peer lost")           /* regroup */                                           \
    X(FL_EDEADLINE, -8, "deadline passed") /* regroup */                                           \
    X(FL_ESTALE, -9, "stale generation")   /* regroup */                                           \
    X(FL_ESTOPPED, -10, "stopped by the user")                                                     \
    X(FL_EFAILED, -11, "the run failed")                                                           \
    X(FL_EINTERNAL, -12, "internal defect")                                                        \
    X(FL_EBUSY, -13, "busy with something else")

typedef enum fl_status {
#define FL_STATUS_ENUM(name, value, text) name = (value),
    FL_STATUS_MAP(FL_STATUS_ENUM)
#undef FL_STATUS_ENUM
} fl_status;

#define FL_MUST_CHECK __attribute__((warn_unused_result))
#define FL_PRINTF(fmt, args) __attribute__((format(printf, fmt, args)))

/* The constant text of a code, never NULL. Threads: any. */
const char *fl_status_text(fl_status status);

/* True for the three codes after which the worker can go on in a new generation. */
bool fl_status_is_regroup(fl_status status);

/* The message of the last failure in this thread: what, where, what was found, what is allowed.
 * Never NULL; valid until this thread's next failure. */
const char *fl_errmsg(void);

/* Record the message and give `status` back, so that a failure is one line:
 * return fl_fail(FL_EINVAL, "stage %d has no layer", stage); */
fl_status fl_fail(fl_status status, const char *format, ...) FL_PRINTF(2, 3) FL_MUST_CHECK;

/* Prefix this thread's message with "context: " and return `status`. */
fl_status fl_within(fl_status status, const char *format, ...) FL_PRINTF(2, 3) FL_MUST_CHECK;

#ifdef __clang_analyzer__ /* cannot see from outside that both give back their first argument */
#define fl_fail(status, ...) ((void)(fl_fail)(status, __VA_ARGS__), (status))
#define fl_within(status, ...) ((void)(fl_within)(status, __VA_ARGS__), (status))
#endif

/* Return at once when `expr` fails: only where nothing is held. */
#define FL_TRY(expr)                                                                               \
    do {                                                                                           \
        fl_status fl_try_status_ = (expr);                                                         \
        if (fl_try_status_ != FL_OK) {                                                             \
            return fl_try_status_;                                                                 \
        }                                                                                          \
    } while (0)

#ifdef __cplusplus
}
#endif
#endif
