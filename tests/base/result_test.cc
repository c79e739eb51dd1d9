// SPDX-License-Identifier: Apache-2.0
#include "kvern/result.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <set>

namespace kvern {
namespace {

TEST(Error, FromErrno) {
    EXPECT_EQ(error_from_errno(ENOSPC, "write '/a'").message, "write '/a': No space left on device");
    EXPECT_EQ(error_from_errno(ENOSPC, "").code, ErrorCode::no_space);
    EXPECT_EQ(error_from_errno(EDQUOT, "").code, ErrorCode::no_space);
    EXPECT_EQ(error_from_errno(EACCES, "").code, ErrorCode::permission);
    EXPECT_EQ(error_from_errno(EPERM, "").code, ErrorCode::permission);
    EXPECT_EQ(error_from_errno(EROFS, "").code, ErrorCode::permission);
    EXPECT_EQ(error_from_errno(ENOMEM, "").code, ErrorCode::resource);
    EXPECT_EQ(error_from_errno(EMFILE, "").code, ErrorCode::resource);
    EXPECT_EQ(error_from_errno(ENOSYS, "").code, ErrorCode::not_supported);
    EXPECT_EQ(error_from_errno(EOPNOTSUPP, "").code, ErrorCode::not_supported);
    EXPECT_EQ(error_from_errno(ECONNREFUSED, "").code, ErrorCode::unavailable);
    EXPECT_EQ(error_from_errno(ECANCELED, "").code, ErrorCode::cancelled);
    EXPECT_EQ(error_from_errno(EIO, "").code, ErrorCode::io);
    EXPECT_EQ(error_from_errno(ENOENT, "").code, ErrorCode::io);
}

TEST(Error, CodesHaveNamesOfTheirOwn) {
    std::set<std::string_view> names;
    for (int code = 0; code <= static_cast<int>(ErrorCode::internal); ++code) {
        names.insert(to_string(static_cast<ErrorCode>(code)));
    }
    EXPECT_EQ(names.size(), static_cast<std::size_t>(ErrorCode::internal) + 1);
}

TEST(Result, CarriesValueOrError) {
    const Result<int> good = 3;
    EXPECT_EQ(good.value(), 3);
    const Result<int> bad = fail(ErrorCode::corrupt, "page 7");
    ASSERT_FALSE(bad);
    EXPECT_EQ(bad.error().code, ErrorCode::corrupt);
    EXPECT_EQ(bad.error().message, "page 7");
}

}  // namespace
}  // namespace kvern
