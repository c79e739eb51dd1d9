// SPDX-License-Identifier: Apache-2.0
// FileFacts: what the file system below a root can do, found by trying it once when the store is opened.
//
// A value without behaviour, read by any thread. What is tried leaves nothing but the folder .kvern-tmp. On a root that
// can't be written nothing can be tried; then the facts say so, and the operations find out for themselves.
#pragma once

#include <string>

#include "store/file/root.h"

namespace kvern {

// How a finished file gets its name without replacing what has it.
enum class LinkWay : std::uint8_t {
    by_descriptor,  // linkat(AT_EMPTY_PATH): root, or the same user since Linux 6.10
    by_proc,        // linkat(/proc/self/fd/N)
    by_name,        // a temporary name first: no O_TMPFILE (NFS), or no /proc
};

struct FileFacts {
    std::string file_system;  // "ext4", or the magic number in hex
    bool writable = false;
    std::string not_writable_why;
    LinkWay link_way = LinkWay::by_name;
    std::string named_why;            // why by_name
    bool attributes = false;          // extended attributes of users
    bool direct = false;              // O_DIRECT with 4 KiB alignment
    std::string buffered_why;         // why not direct
    bool memory_file_system = false;  // no device below: direct I/O has nothing to gain
};

FileFacts find_facts(const FileRoot& root);

}  // namespace kvern
