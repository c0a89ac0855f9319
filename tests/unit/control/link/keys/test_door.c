/* How many descriptors a process may have before its ports are shut. Would catch: a limit of which
 * strangers take what is the run's, and one that is said to suffice and does not. */
#include "control/link/keys/door.h"
#include "control/link/keys/waiting_room.h"
#include "device/system/files/count_files.h"
#include "support/folder.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cmocka.h>

static void test_door__keeps_descriptors_for_the_run(void **state)
{
    (void)state;
    assert_int_equal(fl_door_most(1024, 40), 768); /* a quarter is the run's */
    assert_int_equal(fl_door_most(192, 40), 128);
    assert_int_equal(fl_door_most(1000000, 40), 40 + 1024); /* memory is bounded, too */
    assert_int_equal(fl_door_most(UINT64_MAX, 0), 1024);
    assert_int_equal(fl_door_most(1024, 900), 768); /* whoever has opened the others */
    assert_int_equal(fl_door_most(128, 40), 64);
    assert_int_equal(fl_door_most(90, 40), 26); /* shut from the start */
    assert_int_equal(fl_door_most(64, 40), 0);
    assert_int_equal(fl_door_most(28, 10), 0);
}

/* Would catch: strangers at ports after whom no client of the user has a descriptor, and clients
 * who leave the run none. */
static void test_door__keeps_descriptors_for_clients_and_from_them(void **state)
{
    (void)state;
    assert_int_equal(fl_door_most_near(1024), 960);
    assert_int_equal(fl_door_most_near(128), 112);
    assert_int_equal(fl_door_most_near(64), 48);
    assert_int_equal(fl_door_most_near(10), 0);
    for (uint64_t limit = 128; limit < 3000; limit++) {
        int ports = fl_door_most(limit, 0), near = fl_door_most_near(limit);
        int at_ports = 4 * fl_door_backlog(limit, ports, 4);
        int at_files = 2 * (fl_door_backlog(limit, near, 2) + 1);
        assert_true(ports + at_ports < near);
        assert_true(near + at_files < (int)limit);
    }
}

static void test_door__tells_the_limit_that_suffices(void **state)
{
    (void)state;
    assert_int_equal(fl_door_limit(64), 128);
    assert_int_equal(fl_door_limit(768), 1024);
    for (int most = 1; most < 1000; most++) {
        int least = (int)fl_door_limit((uint64_t)most);
        assert_true(fl_door_most((uint64_t)least, 0) >= most);
        assert_true(fl_door_most((uint64_t)least - 2, 0) < most);
    }
}

/* Would catch: strangers with high numbers that are not counted once a low number is free. */
static void test_door__counts_descriptors_of_any_number(void **state)
{
    (void)state;
    int before = fl_count_files();
    int high = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, before + 100);
    assert_true(high >= before + 100);
    assert_int_equal(fl_count_files(), before + 1);
    close(high);
    assert_int_equal(fl_count_files(), before);
}

/* Would catch: workers that wait for a second because more of them start at once than a port lets
 * wait, and connections that take the run's descriptors while ports are shut. */
static void test_door__lets_some_wait(void **state)
{
    (void)state;
    assert_int_equal(fl_door_backlog(192, 128, 4), 8);
    assert_int_equal(fl_door_backlog(1024, 768, 4), 32);
    assert_int_equal(fl_door_backlog(1000000, 1064, 4), 128);
    assert_int_equal(fl_door_backlog(128, 112, 2), 4);
    assert_int_equal(fl_door_backlog(64, 64, 4), 4);
}

/* Would catch: clients that wait for ever at the socket of the waiting room, and a run that looks
 * as if it took requests. */
static void test_door__gives_way_where_its_socket_was_removed(void **state)
{
    (void)state;
    char dir[FOLDER_SIZE];
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    int own = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    make_folder(dir);
    int dir_fd = open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
    snprintf(at.sun_path, sizeof at.sun_path, "/proc/self/fd/%d/x.sock", dir_fd);
    assert_int_equal(bind(own, (const struct sockaddr *)&at, sizeof at), 0);
    for (int removed = 0; removed < 2; removed++) {
        int room = fl_waiting_room_shut(dir_fd, "x.sock");
        assert_true(room >= 0 && fl_waiting_room_is_shut(dir_fd, "x.sock"));
        assert_true(!removed || unlinkat(dir_fd, "x.sock.open", 0) == 0);
        assert_int_equal(fl_waiting_room_open(dir_fd, "x.sock", &room), !removed);
        assert_true(!removed || errno == ENOENT);
        assert_int_equal(room, -1);
        assert_int_equal(faccessat(dir_fd, "x.sock", F_OK, 0), removed ? -1 : 0);
    }
    assert_int_equal(fl_waiting_room_shut(dir_fd, "x.sock"), -1); /* there is nothing to shut */
    close(own);
    close(dir_fd);
    assert_int_equal(remove_folder(dir), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_door__keeps_descriptors_for_the_run),
        cmocka_unit_test(test_door__keeps_descriptors_for_clients_and_from_them),
        cmocka_unit_test(test_door__tells_the_limit_that_suffices),
        cmocka_unit_test(test_door__counts_descriptors_of_any_number),
        cmocka_unit_test(test_door__lets_some_wait),
        cmocka_unit_test(test_door__gives_way_where_its_socket_was_removed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
