// SPDX-License-Identifier: Apache-2.0
// Opening a value for a get, and reading a piece of it with a blocking call. Any thread.
//
// The way by io_uring shares the opening (uring_reader.h). Checks nothing about the bytes.
#pragma once

#include "store/buffer_walk.h"
#include "store/file/facts.h"
#include "store/file/root.h"
#include "store/file/use.h"
#include "store/op_check.h"

namespace kvern {

struct OpenValue {
    Fd fd;
    std::uint64_t length = 0;  // to read, from Op::offset on; > 0
    bool direct = false;
    std::optional<UseMark> use;  // to be made once the read is delivered
};

// True: there are bytes to read, and `outcome.stat` is filled. False: `outcome` is final.
// `want_direct` is obeyed where offset and buffers are aligned and the file can.
bool open_value(const FileRoot& root, const FileFacts& facts, const Op& op, bool want_direct, OpenValue& value,
                Outcome& outcome);

// 0 when all of the piece is in its buffers; a negative errno value; 1 if the file ended early. `value.direct` becomes
// false if this file refuses it.
int read_piece(OpenValue& value, Piece& piece);

// After a read call failed with EINVAL on a direct file: goes on buffered. False if that isn't the cause.
bool leave_direct(int fd, bool& direct);

Error ended_early(const FileRoot& root, const std::string& key);

}  // namespace kvern
