# The examples are programs as users write them: their HTTP is Boost's. Its headers are not ours to warn about.
add_library(examples_asio INTERFACE)
target_link_libraries(examples_asio INTERFACE Boost::headers Threads::Threads)
target_compile_definitions(examples_asio INTERFACE BOOST_ASIO_NO_DEPRECATED BOOST_ASIO_DISABLE_BOOST_COROUTINE)
