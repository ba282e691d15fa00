// task: the coroutine and socket types of the HTTP side, with the executor spelled out.
//
// One io_context runs on one thread, so everything that belongs to a connection is touched by that thread alone and
// needs no lock. Naming the executor type (instead of any_io_executor) keeps type erasure off the hot path.
#pragma once

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/basic_stream_socket.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/use_awaitable.hpp>

namespace oncekey {

namespace asio = boost::asio;
using boost::system::error_code;

using Executor = asio::io_context::executor_type;
using Socket = asio::basic_stream_socket<asio::ip::tcp, Executor>;

template <class T>
using Task = asio::awaitable<T, Executor>;

// Completion token: the operation's error code comes back as a value.
inline constexpr asio::as_tuple_t<asio::use_awaitable_t<Executor>> use_task{};

} // namespace oncekey
