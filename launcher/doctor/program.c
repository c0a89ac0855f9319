/* The program itself. The libraries are linked, so a missing one ended the process before this. */
#include "launcher/doctor/doctor.h"

#include <jansson.h>
#include <microhttpd.h>
#include <png.h>
#include <xxhash.h>
#include <yaml.h>
#include <zlib.h>
#include <zmq.h>

void fl_doctor_look_at_program(fl_findings *findings)
{
    int major, minor, patch;
    zmq_version(&major, &minor, &patch);
    fl_finding_add(findings, FL_VERDICT_OK, "version", "frostline %s", FL_VERSION);
    fl_finding_add(findings, FL_VERDICT_OK, "libraries",
                   "ZeroMQ %d.%d.%d, libyaml %s, jansson %s, microhttpd %s, xxHash %u.%u.%u, "
                   "zlib %s, libpng %s, Gloo",
                   major, minor, patch, yaml_get_version_string(), jansson_version_str(),
                   MHD_get_version(), XXH_versionNumber() / 10000, XXH_versionNumber() / 100 % 100,
                   XXH_versionNumber() % 100, zlibVersion(), png_get_libpng_ver(NULL));
    if (zmq_has("curve") == 0) {
        fl_finding *f =
            fl_finding_add(findings, FL_VERDICT_WARNING, "encryption", "this ZeroMQ has no CURVE");
        fl_finding_advise(f, "jobs with control.listen: tcp://... are refused; install a ZeroMQ "
                             "that was built with libsodium");
    } else {
        fl_finding_add(findings, FL_VERDICT_OK, "encryption", "ZeroMQ has CURVE");
    }
}
