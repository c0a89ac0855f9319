#include "device/errors/io_status.h"

#include <errno.h>
#include <stddef.h>

fl_status fl_io_status(int error)
{
    static const int passing[] = {ENOSPC, EDQUOT, EIO,    ENOMEM,    EMFILE,
                                  ENFILE, EAGAIN, ESTALE, EREMOTEIO, ETIMEDOUT};
    for (size_t i = 0; i < sizeof passing / sizeof *passing; i++) {
        if (passing[i] == error) {
            return FL_EFAILED;
        }
    }
    return FL_EIO;
}

bool fl_status_is_bad_input(fl_status status)
{
    return status == FL_EINVAL || status == FL_EBUDGET || status == FL_EIO ||
           status == FL_EFORMAT || status == FL_ENOTSUP;
}
