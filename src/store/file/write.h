// SPDX-License-Identifier: Apache-2.0
// NewFile: a file that nobody can see yet. It is written, finished, then published under a name, or leaves nothing.
//
// One thread at a time, except write(), which several may call for parts that don't overlap. Results are 0 or a
// negative errno value. Does not sync: after a power loss a published file may be short or empty (FileStore says what
// that means).
#pragma once

#include <sys/stat.h>

#include <memory>
#include <span>
#include <string>

#include "store/file/facts.h"
#include "store/file/root.h"

namespace kvern {

class NewFile {
  public:
    NewFile() = default;
    NewFile(NewFile&& other) noexcept;
    NewFile& operator=(NewFile&&) = delete;
    ~NewFile() { discard(); }
    // Leaves nothing, at once. The destructor does the same.
    void discard();

    // Without a name in `dir` where the file system can, else under a temporary name in .kvern-tmp.
    int create_unnamed(const FileRoot& root, const FileFacts& facts, int dir, bool direct);
    int create_named(const FileRoot& root, bool direct);

    // Writes all bytes of `buffers` at `offset`. Direct where the file is and the buffers are aligned; a direct write
    // that ends inside a page is padded to the page, and finish() cuts the file.
    int write(std::uint64_t offset, std::span<const Buffer> buffers, bool pad_allowed);
    // Size, metadata, mtime; brings the errors of delayed writes to light (NFS). `status` describes the finished file.
    // Errors from the metadata are told apart by metadata_failed().
    int finish(std::uint64_t size_bytes, const std::string& metadata, struct stat& status);
    bool metadata_failed() const { return metadata_failed_; }

    // -EEXIST if the name exists.
    int link(int dir, const char* name);
    int rename(int dir, const char* name);

  private:
    int write_direct(std::uint64_t offset, std::span<const Buffer> buffers);
    int write_buffered(std::uint64_t offset, std::span<const Buffer> buffers);
    int open_named(const FileRoot& root, int flags);

    Fd fd_;
    bool direct_ = false;
    bool metadata_failed_ = false;
    LinkWay link_way_ = LinkWay::by_name;
    std::shared_ptr<const Fd> folder_;  // of name_
    std::string name_;                  // temporary; empty: none
};

}  // namespace kvern
