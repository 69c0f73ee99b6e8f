! Has an accelerator multiply two matrices, and compares with matmul.
!
!   dgemm [ADDRESS]     of `naa serve`; 127.0.0.1 if none is given
program dgemm
    use, intrinsic :: iso_c_binding
    use naa
    implicit none

    integer, parameter :: m = 200, n = 300, k = 250
    real(c_double), allocatable, target :: a(:, :), b(:, :), c(:, :)
    integer(c_int8_t), target :: arguments(NAA_BLOCK_BYTES), status(NAA_BLOCK_BYTES)
    type(naa_region) :: regions(5)
    type(naa_outcome) :: outcome
    type(c_ptr) :: session
    character(256) :: address
    real(c_double) :: difference

    address = "127.0.0.1"
    if (command_argument_count() > 0) call get_command_argument(1, address)
    allocate (a(m, k), b(k, n), c(m, n))
    call random_number(a)
    call random_number(b)
    c = 0

    ! The function has matrices by rows. Fortran's, by columns, are to it their transposes, and as C' = B'A' it is asked
    ! for the product of B' (n x k) and A' (k x m).
    call check(naa_arguments(arguments, naa_code_of("dgemm"), int([n, m, k], c_int64_t), 3_c_size_t))
    regions = [naa_region_of(arguments, NAA_INPUT), naa_region_of(b, NAA_INPUT), naa_region_of(a, NAA_INPUT), &
               naa_region_of(status, NAA_OUTPUT), naa_region_of(c, NAA_OUTPUT)]

    call check(naa_connect(session, address, regions))
    call check(naa_call(session, naa_code_of("dgemm"), 0, 10000, outcome))
    call check(naa_session_close(session))

    difference = maxval(abs(c - matmul(a, b)))
    print '(3(a, i0), a, i0, a, es8.1)', "dgemm ", m, " x ", k, " by ", k, " x ", n, &
        ": difference from matmul at most ", difference
    if (outcome%produced(2) /= 8*size(c) .or. difference > 1d-9) error stop "not the product"

contains

    subroutine check(result)
        integer(c_int32_t), intent(in) :: result

        if (result == NAA_OK) return
        print '(3a)', naa_name_of(result), ": ", naa_error_text()
        stop 1, quiet=.true.
    end subroutine
end program
