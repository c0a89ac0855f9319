/* Communicators that go from one generation to the next, over a stand-in for NCCL: split off the
 * parent of the same members, shrunk to fewer, fresh ones otherwise; libraries without shrink;
 * calls that fail, never end or never return; members that die. Each generation exchanges and
 * checks data. Catches a wrong rank in a shrunk or split communicator, members that choose
 * different ways, a parent that is used although a member has lost it, and a wait that nobody ends.
 */
#include "support/ranks/nccl_members.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static const char standin[] = FL_BINARY_DIR "/tests/nccl_standin.so";
static const char old_standin[] = FL_BINARY_DIR "/tests/nccl_standin_old.so";
static const char unrevoking[] = FL_BINARY_DIR "/tests/nccl_standin_unrevoking.so";

static void play(const nccl_script *s)
{
    if (nccl_script_count_wrong(s) != 0) {
        fail_msg("%s with '%s'", s->library, s->options);
    }
}

/* ---- the cases ---- */

static void test_nccl_parent__goes_from_one_generation_to_the_next(void **state)
{
    (void)state;
    static const nccl_script s = {standin,
                                  "",
                                  {{.members = "0123", .way = FL_COMM_REBUILD},
                                   {.members = "3120", .way = FL_COMM_SPLIT},
                                   {.members = "0123", .way = FL_COMM_SPLIT},
                                   {.members = "302", .way = FL_COMM_SHRINK},
                                   {.members = "230", .way = FL_COMM_SPLIT}}};
    play(&s);
}

static void test_nccl_parent__is_fresh_where_members_come(void **state)
{
    (void)state;
    static const nccl_script s = {standin,
                                  "",
                                  {{.members = "12", .way = FL_COMM_REBUILD},
                                   {.members = "0123", .way = FL_COMM_REBUILD},
                                   {.members = "20", .way = FL_COMM_SHRINK},
                                   {.members = "13", .way = FL_COMM_SHRINK},
                                   {.members = "01", .way = FL_COMM_REBUILD}}};
    play(&s);
}

static void test_nccl_parent__is_not_shrunk_by_a_library_that_cannot(void **state)
{
    (void)state;
    static const nccl_script s = {old_standin,
                                  "",
                                  {{.members = "0123", .way = FL_COMM_REBUILD},
                                   {.members = "2310", .way = FL_COMM_SPLIT},
                                   {.members = "023", .way = FL_COMM_REBUILD}}};
    play(&s);
}

static void test_nccl_parent__survives_a_member(void **state)
{
    (void)state;
    static const nccl_script list[] = {
        {standin,
         "",
         {{.members = "0123", .way = FL_COMM_REBUILD},
          {.members = "2310", .way = FL_COMM_SPLIT, .falls = true},
          {.members = "023", .way = FL_COMM_SHRINK, .after_loss = true}}},
        {unrevoking,
         "",
         {{.members = "0123", .way = FL_COMM_REBUILD, .falls = true},
          {.members = "302", .way = FL_COMM_SHRINK, .after_loss = true}}},
        {old_standin,
         "",
         {{.members = "0123", .way = FL_COMM_REBUILD, .falls = true},
          {.members = "023", .way = FL_COMM_REBUILD, .after_loss = true}}}};
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        play(&list[i]);
    }
}

/* ---- each call of the state machine, and each way for it to go wrong ---- */

typedef struct call_fault {
    const char *options;
    nccl_call_end end;
} call_fault;

/* In the opening of the first generation, whose parent is fresh. */
static const call_fault split_faults[] = {
    {"fail=GetUniqueId:1:2", NCCL_CALL_FAILS},
    {"hang=GetUniqueId:1", NCCL_CALL_FAILS},
    {"fail=CommInitRankConfig:1:6", NCCL_CALL_FAILS},
    {"error=CommInitRankConfig:1:2", NCCL_CALL_FAILS},
    {"stall=CommInitRankConfig:1", NCCL_CALL_FAILS},
    {"hang=CommInitRankConfig:1", NCCL_CALL_FAILS},
    {"late=CommInitRankConfig:1:300000", NCCL_CALL_IS_LATE},
    {"kill=CommInitRankConfig:1", NCCL_CALL_DIES},
    {"stop=CommInitRankConfig:1", NCCL_CALL_STOPS},
    {"fail=CommSplit:1:6", NCCL_CALL_FAILS},
    {"error=CommSplit:2:2", NCCL_CALL_FAILS},
    {"stall=CommSplit:1", NCCL_CALL_FAILS},
    {"hang=CommSplit:2", NCCL_CALL_FAILS},
    {"late=CommSplit:1:300000,late=CommSplit:2:300000", NCCL_CALL_IS_LATE},
    {"kill=CommSplit:1", NCCL_CALL_DIES},
    {"kill=CommSplit:3", NCCL_CALL_DIES},
    {"stop=CommSplit:2", NCCL_CALL_STOPS},
    {"fail=AllReduce:1:6", NCCL_CALL_FAILS},
    {"stall=AllReduce:1", NCCL_CALL_FAILS},
    {"kill=Send:1", NCCL_CALL_DIES},
    {"stop=Recv:1", NCCL_CALL_STOPS},
    {"fail=CommGetAsyncError:3:6", NCCL_CALL_FAILS},
    {"hang=CommGetAsyncError:3", NCCL_CALL_FAILS},
    {"kill=CommGetAsyncError:3", NCCL_CALL_DIES},
    {"stop=CommGetAsyncError:3", NCCL_CALL_STOPS},
    {"stall=CommSplit:1,fail=CommAbort:1:3", NCCL_CALL_FAILS},
};

/* In the second one, for which the parent of four is shrunk to three. */
static const call_fault shrink_faults[] = {
    {"fail=CommShrink:1:6", NCCL_CALL_FAILS},        {"error=CommShrink:1:2", NCCL_CALL_FAILS},
    {"stall=CommShrink:1", NCCL_CALL_FAILS},         {"hang=CommShrink:1", NCCL_CALL_FAILS},
    {"late=CommShrink:1:300000", NCCL_CALL_IS_LATE}, {"kill=CommShrink:1", NCCL_CALL_DIES},
    {"stop=CommShrink:1", NCCL_CALL_STOPS},
};

/* In the third one, after rank 3 was lost in the second. */
static const call_fault revoke_faults[] = {
    {"fail=CommRevoke:1:6", NCCL_CALL_FAILS}, {"stall=CommRevoke:1", NCCL_CALL_FAILS},
    {"hang=CommRevoke:1", NCCL_CALL_FAILS},   {"late=CommRevoke:1:300000", NCCL_CALL_IS_LATE},
    {"kill=CommRevoke:1", NCCL_CALL_DIES},    {"stop=CommRevoke:1", NCCL_CALL_STOPS},
    {"fail=CommShrink:1:2", NCCL_CALL_FAILS}, {"kill=CommShrink:1", NCCL_CALL_DIES},
};

/* The generation with the fault, after those before it, and the one in which all go on. */
static nccl_script script_of(const call_fault *f, const nccl_generation *before, int n_before,
                             const char *members, fl_comm_way way)
{
    bool stays = f->end == NCCL_CALL_FAILS || f->end == NCCL_CALL_IS_LATE;
    bool after_loss = n_before > 1;
    nccl_script s = {.library = standin, .options = f->options};
    for (int i = 0; i < n_before; i++) {
        s.of[i] = before[i];
    }
    s.of[n_before] = (nccl_generation){.members = members,
                                       .way = way,
                                       .breaks = f->end != NCCL_CALL_IS_LATE,
                                       .call = f->end,
                                       .after_loss = after_loss};
    s.of[n_before + 1] =
        (nccl_generation){.members = stays                  ? members
                                     : after_loss           ? "02"
                                     : strlen(members) == 4 ? "302"
                                                            : "30",
                          .way = f->end == NCCL_CALL_IS_LATE ? FL_COMM_SPLIT : FL_COMM_REBUILD,
                          .after_loss = !stays,
                          .may_shrink = !stays && n_before > 0};
    return s;
}

/* Cases play beside each other: most of their time is a wait for a deadline. */
static void play_each(const call_fault *faults, size_t n, const nccl_generation *before,
                      int n_before, const char *members, fl_comm_way way)
{
    enum { AT_ONCE = 9 };
    int n_wrong = 0;
    fflush(NULL);
    for (size_t first = 0; first < n; first += AT_ONCE) {
        pid_t players[AT_ONCE];
        size_t some = n - first < AT_ONCE ? n - first : AT_ONCE;
        for (size_t i = 0; i < some; i++) {
            if ((players[i] = fork()) == 0) {
                const nccl_script s = script_of(&faults[first + i], before, n_before, members, way);
                _exit(nccl_script_count_wrong(&s));
            }
        }
        for (size_t i = 0; i < some; i++) {
            int status = 0;
            assert_int_equal(waitpid(players[i], &status, 0), players[i]);
            if (status != 0) {
                print_error("'%s'\n", faults[first + i].options);
                n_wrong++;
            }
        }
    }
    assert_int_equal(n_wrong, 0);
}

#define N_OF(list) (sizeof(list) / sizeof *(list))

/* Catches a call of the opening that somebody waits for without an end. */
static void test_nccl_parent__is_left_whichever_call_goes_wrong(void **state)
{
    (void)state;
    play_each(split_faults, N_OF(split_faults), NULL, 0, "1023", FL_COMM_REBUILD);
}

static void test_nccl_parent__is_left_when_it_cannot_be_shrunk(void **state)
{
    (void)state;
    static const nccl_generation before[] = {{.members = "0123", .way = FL_COMM_REBUILD}};
    play_each(shrink_faults, N_OF(shrink_faults), before, 1, "013", FL_COMM_SHRINK);
}

static void test_nccl_parent__is_left_when_it_cannot_be_revoked(void **state)
{
    (void)state;
    static const nccl_generation before[] = {
        {.members = "0123", .way = FL_COMM_REBUILD},
        {.members = "3210", .way = FL_COMM_SPLIT, .third_falls = true}};
    play_each(revoke_faults, N_OF(revoke_faults), before, 2, "012", FL_COMM_SHRINK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nccl_parent__goes_from_one_generation_to_the_next),
        cmocka_unit_test(test_nccl_parent__is_fresh_where_members_come),
        cmocka_unit_test(test_nccl_parent__is_not_shrunk_by_a_library_that_cannot),
        cmocka_unit_test(test_nccl_parent__survives_a_member),
        cmocka_unit_test(test_nccl_parent__is_left_whichever_call_goes_wrong),
        cmocka_unit_test(test_nccl_parent__is_left_when_it_cannot_be_shrunk),
        cmocka_unit_test(test_nccl_parent__is_left_when_it_cannot_be_revoked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
