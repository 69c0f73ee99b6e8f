//! What connections that wrap another stream have in common.

/// The methods of [`AsyncWrite`](tokio::io::AsyncWrite) of a connection that writes to the stream in its field `$stream`. The method
/// `$check` is called before bytes are written, if it is given.
macro_rules! write_to {
    ($stream:tt $(after $check:ident)?) => {
        fn poll_write(
            mut self: Pin<&mut Self>,
            context: &mut Context<'_>,
            bytes: &[u8],
        ) -> Poll<io::Result<usize>> {
            $(self.$check(context)?;)?
            Pin::new(&mut self.$stream).poll_write(context, bytes)
        }

        fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
            Pin::new(&mut self.$stream).poll_flush(context)
        }

        fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
            Pin::new(&mut self.$stream).poll_shutdown(context)
        }

        fn poll_write_vectored(
            mut self: Pin<&mut Self>,
            context: &mut Context<'_>,
            bytes: &[io::IoSlice<'_>],
        ) -> Poll<io::Result<usize>> {
            $(self.$check(context)?;)?
            Pin::new(&mut self.$stream).poll_write_vectored(context, bytes)
        }

        fn is_write_vectored(&self) -> bool {
            self.$stream.is_write_vectored()
        }
    };
}

pub(crate) use write_to;
