//! The server of the tests whose definitions change. An example, because that is built beside the program under test.

fn main() {
    portcullis_testkit::changeable_server::run();
}
